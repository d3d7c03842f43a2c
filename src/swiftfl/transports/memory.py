"""The protocol in its simplest form: clients are threads of one process, and one lock guards it all.

For tests, and to read next to `base.py`: what the other transports do with slots, futexes and
messages is here a dictionary and a condition.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Condition
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from swiftfl.transports.base import Finished, Lost, Stopped, Transport
from swiftfl.vector import Statistics, Vector, advance

T = TypeVar("T")


class Memory:
    """What the clients share. Vectors in it are never written again, so readers need no lock."""

    def __init__(self, neighbours: Sequence[Sequence[int]], x0: Vector) -> None:
        n = len(neighbours)
        self.neighbours = neighbours
        self.changed = Condition()
        self.newest: list[tuple[Vector, int]] = [(x0.copy(), 0)] * n
        self.cells: list[Vector] = [x0.copy()] * n
        self.offers: list[dict[int, tuple[Vector, set[int]]]] = [{} for _ in range(n)]
        self.offered = [-1] * n
        self.given: dict[int, dict[int, tuple[Vector, float]]] = {}
        self.means: dict[int, Vector] = {}
        self.gone: set[int] = set()
        self.finished: set[int] = set()
        self.stopped = False

    @classmethod
    def create(
        cls, neighbours: Sequence[Sequence[int]], size: int, dtype: npt.DTypeLike, x0: Vector
    ) -> Memory:
        return cls(neighbours, x0.astype(dtype))

    def connect(self, i: int) -> Transport:
        return MemoryTransport(self, i)

    def mark_gone(self, i: int) -> None:
        with self.changed:
            self.gone.add(i)
            self.changed.notify_all()

    def stop(self) -> None:
        with self.changed:
            self.stopped = True
            self.changed.notify_all()

    def close(self) -> None:
        """Nothing to release."""


class MemoryTransport:
    """One thread's end."""

    def __init__(self, all: Memory, i: int) -> None:
        self.all = all
        self.i = i
        self.waited = 0.0

    # --- wait-free ---

    def publish(self, x: Vector, version: int) -> None:
        self.all.newest[self.i] = (x.copy(), version)

    def read(self, neighbour: int, use: Callable[[Vector, int], T]) -> T | None:
        return use(*self.all.newest[neighbour])

    def lost(self) -> frozenset[int]:
        return frozenset(self.all.gone.intersection(self.all.neighbours[self.i]))

    def finish(self) -> None:
        with self.all.changed:
            self.all.finished.add(self.i)
            self.all.changed.notify_all()

    # --- waiting ---

    def _wait(self, true: Callable[[], bool]) -> None:
        """Sleep until it is true; the lock is held before and after."""
        began = time.perf_counter()
        while not true():
            if self.all.stopped:
                raise Stopped
            self.all.changed.wait()
        self.waited += time.perf_counter() - began

    def _away(self, k: int) -> bool:
        return k in self.all.gone or k in self.all.finished

    def offer(self, x: Vector, round: int, to: Sequence[int]) -> None:
        mine = self.all.offers[self.i]
        with self.all.changed:
            while len(mine) > 1:
                oldest = min(mine)
                self._wait(lambda old=oldest: all(self._away(k) for k in mine[old][1]))  # type: ignore[misc]
                del mine[oldest]
            mine[round] = (x.copy(), set(to))
            self.all.offered[self.i] = round
            self.all.changed.notify_all()

    def collect(self, neighbour: int, round: int, use: Callable[[Vector], T]) -> T:
        theirs = self.all.offers[neighbour]
        with self.all.changed:
            self._wait(
                lambda: round in theirs or self.all.offered[neighbour] > round or self._away(neighbour)
            )
            if round not in theirs:
                raise Finished(neighbour) if neighbour in self.all.finished else Lost(neighbour)
            x = theirs[round][0]
        result = use(x)
        with self.all.changed:
            theirs[round][1].discard(self.i)
            self.all.changed.notify_all()
        return result

    def all_reduce(self, value: Vector, weight: float, round: int) -> Vector:
        with self.all.changed:
            given = self.all.given.setdefault(round, {})
            given[self.i] = (value.copy(), weight)
            self.all.changed.notify_all()
            self._wait(lambda: all(k in given or self._away(k) for k in range(len(self.all.neighbours))))
            if round not in self.all.means:
                self.all.means = {round: _mean([given[k] for k in sorted(given)])}
                self.all.given = {round: given}
            return _copy(self.all.means[round])

    def load(self) -> Vector:
        return _copy(self.all.cells[self.i])

    def average_with(self, neighbour: int) -> Vector:
        with self.all.changed:
            if neighbour in self.all.gone:
                raise Lost(neighbour)
            mean: Vector = 0.5 * (self.all.cells[self.i] + self.all.cells[neighbour])
            self.all.cells[self.i] = self.all.cells[neighbour] = mean
            return _copy(mean)

    def add(self, move: Vector, statistics: Statistics | None) -> Vector:
        with self.all.changed:
            self.all.cells[self.i] = advance(self.all.cells[self.i], move, statistics)
            return _copy(self.all.cells[self.i])

    def close(self) -> None:
        """Nothing to release."""


def _mean(given: list[tuple[Vector, float]]) -> Vector:
    total = np.zeros_like(given[0][0])
    for value, weight in given:
        total += weight * value
    return (total / sum(weight for _, weight in given)).astype(total.dtype, copy=False)


def _copy(x: Vector) -> Vector:
    return np.array(x)
