"""The protocol in its simplest form: clients are threads of one process, and one lock guards it all.

For tests, and to read next to `base.py`: what the other transports do with slots, futexes and
messages is here a dictionary and a condition.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Condition
from typing import Any, TypeVar

import numpy as np

from swiftfl.transports.base import Finished, Lost, Mean, SmallMessage, Stopped, transport
from swiftfl.transports.codec import Identity, MakeCodec, transmitted
from swiftfl.vector import Statistics, Vector, advance, copied, halfway, weighted_mean

T = TypeVar("T")


@transport("memory", processes=False)
class MemoryPlan:
    """Clients in threads of one process.

    The vectors that they share are never written again, so readers need no lock.
    """

    def __init__(
        self,
        neighbours: Sequence[Sequence[int]],
        x0: Vector,
        codec: MakeCodec = Identity,
        in_rounds: bool = False,
    ) -> None:
        n = len(neighbours)
        self.neighbours, self.make_codec = neighbours, codec
        self.changed = Condition()
        self.shown: list[tuple[Vector, int]] = [(x0.copy(), 0)] * n
        self.newest = [(x, version, time.monotonic()) for x, version in self.shown]  # and since when
        self.cells: list[Vector] = [x0.copy()] * n
        self.offers: list[dict[int, tuple[Vector, set[int]]]] = [{} for _ in range(n)]
        self.offered = [-1] * n
        self.reached = [-1] * n  # the round that each has come to
        self.averaged = [0] * n  # how often others have averaged with each cell
        self.given: dict[int, dict[int, tuple[float, Vector]]] = {}
        self.means: dict[int, Vector] = {}
        self.told: dict[tuple[int, int], dict[int, SmallMessage]] = {}
        for i, those in enumerate(neighbours):
            self.told.update({(i, k): {} for k in those})
        self.gone: set[int] = set()
        self.finished: set[int] = set()
        self.from_round = [0] * n
        self.stopped = False

    def connect(self, i: int) -> MemoryTransport:
        return MemoryTransport(self, i)

    def observe(self) -> MemoryObserver:
        return MemoryObserver(self)

    def mark_gone(self, i: int) -> None:
        with self.changed:
            self.gone.add(i)
            self.changed.notify_all()

    def rejoin(self, i: int, from_round: int = 0) -> None:
        with self.changed:
            self.from_round[i] = from_round
            self.finished.discard(i)
            self.gone.discard(i)

    def stop(self) -> None:
        with self.changed:
            self.stopped = True
            self.changed.notify_all()

    @property
    def models_in_memory(self) -> int:
        """Per client: the newest as neighbours and as observers see it, a cell, and two offers."""
        return 5 * len(self.neighbours)

    def close(self) -> None:
        """Nothing to release."""


class MemoryObserver:
    """What evaluators see."""

    def __init__(self, plan: MemoryPlan) -> None:
        self.plan = plan

    def read(self, client: int, use: Callable[[Vector, int], T]) -> T | None:
        return use(*self.plan.shown[client])

    def close(self) -> None:
        """Nothing to release."""


class MemoryTransport:
    """One thread's end."""

    def __init__(self, plan: MemoryPlan, i: int) -> None:
        self.plan, self.i = plan, i
        self.neighbours = plan.neighbours[i]
        self.codec = plan.make_codec()
        self.waited = 0.0
        self._averaged = plan.averaged[i]
        self._published: dict[int, float] = {}  # when what was read last was

    # --- wait-free ---

    def publish(self, x: Vector, version: int) -> None:
        self.show(x, version)
        self.plan.newest[self.i] = (_copy(transmitted(self.codec, x)), version, time.monotonic())

    def show(self, x: Vector, version: int) -> None:
        self.plan.shown[self.i] = (_copy(x), version)

    def read(self, neighbour: int, use: Callable[[Vector, int], T]) -> T | None:
        x, version, self._published[neighbour] = self.plan.newest[neighbour]
        return use(x, version)

    def since_published(self, neighbour: int) -> float | None:
        return time.monotonic() - self._published[neighbour] if neighbour in self._published else None

    def tell(self, neighbour: int, message: SmallMessage) -> None:
        self.plan.told[self.i, neighbour][message.kind] = message

    def heard(self, neighbour: int) -> list[SmallMessage]:
        return list(self.plan.told[neighbour, self.i].values())

    def lost(self) -> frozenset[int]:
        return frozenset(self.plan.gone.intersection(self.neighbours))

    def finish(self) -> None:
        with self.plan.changed:
            self.plan.finished.add(self.i)
            self.plan.changed.notify_all()

    # --- waiting ---

    def _wait(self, true: Callable[[], bool]) -> None:
        """Sleep until it is true; the lock is held before and after."""
        began = time.perf_counter()
        while not true():
            if self.plan.stopped:
                raise Stopped
            self.plan.changed.wait()
        self.waited += time.perf_counter() - began

    def _away(self, k: int, round: int) -> bool:
        return k in self.plan.gone or k in self.plan.finished or round < self.plan.from_round[k]

    def offer(self, x: Vector, round: int, to: Sequence[int]) -> None:
        mine = self.plan.offers[self.i]
        with self.plan.changed:
            while len(mine) > 1:
                oldest = min(mine)
                self._wait(lambda old=oldest: all(self._away(k, old) for k in mine[old][1]))  # type: ignore[misc]
                del mine[oldest]
            mine[round] = (_copy(transmitted(self.codec, x)), set(to))
            self.plan.offered[self.i] = round
            self.plan.changed.notify_all()

    def collect(self, neighbour: int, round: int, use: Callable[[Vector], T]) -> T:
        plan, theirs = self.plan, self.plan.offers[neighbour]
        with plan.changed:
            self._wait(
                lambda: round in theirs or plan.offered[neighbour] > round or self._away(neighbour, round)
            )
            if round not in theirs:
                raise Finished(neighbour) if neighbour in plan.finished else Lost(neighbour)
            x = theirs[round][0]
        result = use(x)
        with plan.changed:
            theirs[round][1].discard(self.i)
            plan.changed.notify_all()
        return result

    def all_reduce(self, value: Vector, weight: float, round: int) -> Mean:
        plan = self.plan
        with plan.changed:
            given = plan.given.setdefault(round, {})
            given[self.i] = (float(weight), _copy(value))
            plan.changed.notify_all()
            self._wait(lambda: all(k in given or self._away(k, round) for k in range(len(plan.neighbours))))
            if round not in plan.means:
                plan.means = {round: weighted_mean([given[k] for k in sorted(given)])}
                plan.given = {round: given}
            return Mean(_copy(plan.means[round]), len(given))

    def barrier(self, round: int) -> None:
        plan = self.plan
        with plan.changed:
            plan.reached[self.i] = round
            plan.changed.notify_all()
            self._wait(lambda: all(at >= round or self._away(k, round) for k, at in enumerate(plan.reached)))

    def set_cell(self, x: Vector) -> None:
        with self.plan.changed:
            self.plan.cells[self.i] = _copy(x)

    def load(self) -> Vector:
        return _copy(self.plan.cells[self.i])

    def average_with(self, neighbour: int) -> Vector:
        cells = self.plan.cells
        with self.plan.changed:
            if neighbour in self.plan.gone:
                raise Lost(neighbour)
            mean = halfway(cells[self.i], cells[neighbour])
            cells[self.i] = cells[neighbour] = mean
            self.plan.averaged[neighbour] += 1
            return _copy(mean)

    @property
    def answers(self) -> int:
        return self.plan.averaged[self.i] - self._averaged

    def add(self, move: Vector, statistics: Statistics | None) -> Vector:
        with self.plan.changed:
            self.plan.cells[self.i] = advance(self.plan.cells[self.i], move, statistics)
            return _copy(self.plan.cells[self.i])

    def close(self) -> None:
        """Nothing to release."""


def _copy(x: Any) -> Vector:
    """In host memory, wherever x is."""
    return copied(x) if isinstance(x, np.ndarray) else np.array(x)
