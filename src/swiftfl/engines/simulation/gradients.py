"""Gradients that clients are parked for, computed together and not before they are needed.

A client's gradient depends on nothing that happens before it goes on, so it is held back. When
the first is needed, all that are pending become a group, which the workload divides into pieces. What
a piece consists of follows from the group alone. When it is computed, and by which process, changes nothing:
without helpers (`helpers.py`) when the first of its clients goes on, with them as far ahead as there is room.
Where a gradient has the same bits in whatever group it is computed, helpers need not even wait for the group:
every few clients that are parked are one, so that they compute while the run lets the others go on.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from swiftfl.engines.saved import Pool, Saved, Tree, pack_number
from swiftfl.engines.simulation.event_queue import EventQueue
from swiftfl.engines.simulation.helpers import HandedOut, Helpers
from swiftfl.engines.simulation.record import ClientRecord
from swiftfl.engines.simulation.replies import pack_slope, unpack_slope
from swiftfl.sample import Batch, Slope
from swiftfl.vector import Vector
from swiftfl.verbs import Gradient, Overlapped
from swiftfl.workload.base import GradientPiece, Workload, divisible

WAITING_BYTES = 256 << 20  # of gradients computed before they are needed, where they cannot be divided
AHEAD_LEAST, AHEAD_MOST = 8, 64
"""Every process has a share of the clients ahead, but no fewer and no more than these at a time."""
_ALL_IN_A_CACHE = 256  # clients: of so few it does not matter which are computed together
_NEVER = sys.maxsize
NOBODY = -1
"""In the place of a client of a piece that was lost before its gradient was used."""


class PlannedPiece:
    """A piece of a group, until its gradients are known: whose, and at which models and batches."""

    __slots__ = ("clients", "large", "task", "verbs", "way")

    def __init__(self, way: str, clients: list[int], verbs: list[Gradient] | None) -> None:
        self.way, self.clients = way, clients
        self.verbs = verbs  # None after a checkpoint: those that the clients are parked at
        self.task: HandedOut[list[Slope]] | None = None  # with the helpers
        self.large = False  # than what helpers have room for: the run computes it, and it is in no queue


class PendingGradients:
    """Who is parked at a gradient, what was computed already, and the losses of the batches."""

    def __init__(
        self,
        records: Sequence[ClientRecord],
        workload: Workload,
        model_bytes: int,
        helpers: Helpers,
        batch_sizes: Callable[[], tuple[int, int]],
        events: EventQueue | None = None,
    ) -> None:
        """`batch_sizes` are those of the smallest and of the largest batch of the run; `events` say when a
        client goes on, where that is known before.
        """
        self._records, self._workload, self._helpers = records, workload, helpers
        self._events = events
        self._batch_sizes = batch_sizes
        self._divisible = divisible(workload)
        self._most = max(1, WAITING_BYTES // model_bytes)
        share = min(max(AHEAD_LEAST, len(records) // helpers.processes), AHEAD_MOST)
        self._few = share if helpers.processes > 1 and len(records) >= 2 * AHEAD_LEAST else _NEVER
        self._one: int | None = None  # clients of a piece of so many, when that is known
        self._seen = False  # whether this process has computed a piece
        self._ahead = _NEVER  # from how many pending clients on they are a group: `_few`, with helpers
        self._pending: list[int] = []
        self._planned: dict[int, PlannedPiece] = {}
        self._queue: deque[PlannedPiece] = deque()  # that nobody has begun
        self._computed: dict[int, Slope] = {}
        self.before_step: Callable[[], None] | None = None
        """Is called whenever a client gets its gradient: as often, and when, whatever the pieces are."""
        self._loss_sum = 0.0
        self._loss_count = 0

    def add(self, i: int) -> None:
        """Client i is parked at a gradient, as soon as its verb is served; those before it are."""
        if len(self._pending) >= self._ahead:
            self._plan_ahead()
        self._pending.append(i)

    def take(self, i: int) -> Slope:
        """The gradient that client i is parked for; those of its piece are computed with it."""
        if self.before_step is not None:
            self.before_step()
        slope = self._computed.pop(i, None)
        if slope is None:
            self._compute(i)
            slope = self._computed.pop(i)
        self._records[i].loss = slope.loss
        self._loss_sum += slope.loss
        self._loss_count += 1
        return slope

    def _compute(self, i: int) -> None:
        if i not in self._planned:
            self._plan_with(i)
        piece = self._planned[i]
        if piece.task is None:
            self._leave_queue(piece)
            if self._seen:
                self._hand_out(piece)
            began = time.perf_counter()
            slopes = self._here(piece)
            self._helpers.spent(time.perf_counter() - began)
            if not self._seen:  # only now it shows whether other processes could find the same
                self._seen = True
                self._hand_out(piece)
        else:
            slopes = self._helpers.finish(piece.task)
            piece.task = None  # which knows the piece: their circle would keep its models
            self._hand_out(piece)
        for k, slope in zip(piece.clients, slopes, strict=True):
            if k != NOBODY:
                del self._planned[k]
                self._computed[k] = slope

    def _here(self, piece: PlannedPiece) -> list[Slope]:
        xs, batches = self._asked(piece)
        if self._divisible is None:
            return self._workload.gradients(xs, batches)
        return self._divisible.piece(piece.way, xs, batches)

    def _asked(self, piece: PlannedPiece) -> tuple[list[Vector], list[Batch]]:
        verbs = self._verbs(piece)
        return [verb.x for verb in verbs], [verb.batch for verb in verbs]

    def _hand_out(self, now: PlannedPiece) -> None:
        """Give helpers, if there are any, as many pieces as they have room for."""
        few = self._ahead_like(self._verbs(now)[0])
        waiting = bool(self._queue) or few != _NEVER
        there = self._helpers.wanted(waiting, partial(self._largest_piece, now))
        self._ahead = few if there else _NEVER
        if there:
            self._fill()

    def _ahead_like(self, verb: Gradient) -> int:
        """How many clients are a group before anybody needs them."""
        if self._few == _NEVER or self._divisible is None or not self._divisible.separable:
            return _NEVER
        if self._one is None:
            self._one = self._together(verb, verb.batch.indices.size)
            self._few = max(AHEAD_LEAST, self._one)  # more would leave a small piece each time
        return self._few

    def _together(self, verb: Gradient, samples: int) -> int:
        """How many clients a piece has of a group that is made ahead, with batches of so many samples."""
        assert self._divisible is not None
        batch = verb.batch
        like = Batch(batch.client, batch.counter, np.resize(batch.indices, samples))
        return len(self._divisible.pieces([verb.x] * self._few, [like] * self._few)[0].members)

    def _largest_piece(self, now: PlannedPiece) -> tuple[int, int]:
        """For how many clients, and batches of how many samples, helpers need room.

        The piece that happens to be the first says little of the others: clients have unequal data, epochs
        end with small batches, and of these more are computed together.
        """
        smallest, largest = self._batch_sizes()
        verbs = [self._verbs(piece) for piece in (now, *self._queue)]
        clients, samples = max(map(len, verbs)), max(of[0].batch.indices.size for of in verbs)
        if self._ahead_like(verbs[0][0]) != _NEVER:
            clients = max(clients, self._together(verbs[0][0], smallest or samples))
        return clients, max(samples, largest)

    def _fill(self) -> None:
        helpers, queue = self._helpers, self._queue
        while queue and helpers.room:
            piece = queue.popleft()
            piece.task = helpers.hand_out(piece.way, *self._asked(piece), partial(self._here, piece))
            piece.large = piece.task is None

    def _leave_queue(self, piece: PlannedPiece) -> None:
        if not piece.large:
            self._queue.remove(piece)

    def _plan_ahead(self) -> None:
        """Let helpers compute what is pending, before anybody needs it."""
        group, self._pending = self._pending, []
        self._plan_group(group)
        self._fill()

    def _plan_with(self, i: int) -> None:
        """Divide what is pending into pieces."""
        self._plan_group(self._group_of(i))

    def _plan_group(self, group: list[int]) -> None:
        verbs = [_gradient(self._records[k].parked) for k in group]
        if self._divisible is None:
            self._plan(PlannedPiece("", group, verbs))
            return
        group, verbs, parts = self._divided(group, verbs)
        if len(parts) == 1:
            self._plan(PlannedPiece(parts[0].way, group, verbs))
            return
        for part in parts:
            self._plan(
                PlannedPiece(part.way, [group[k] for k in part.members], [verbs[k] for k in part.members])
            )

    def _divided(
        self, group: list[int], verbs: list[Gradient]
    ) -> tuple[list[int], list[Gradient], list[GradientPiece]]:
        """A group and its parts; a large one in the order in which its clients go on, if no bit can tell.

        The clients of a part then need their gradients at about the same time, so that few wait, and these,
        like the models where they were taken, are still in a cache.
        """
        assert self._divisible is not None
        sorts = self._events is not None and len(group) > _ALL_IN_A_CACHE
        known = self._divisible.separable
        if sorts and known:
            group, verbs = self._by_turn(group, verbs)
        parts = self._parts(verbs)
        if (
            sorts and self._divisible.separable and not known
        ):  # as these parts have shown, the first of the run
            group, verbs = self._by_turn(group, verbs)
            parts = self._parts(verbs)
        return group, verbs, parts

    def _parts(self, verbs: Sequence[Gradient]) -> list[GradientPiece]:
        assert self._divisible is not None
        return self._divisible.pieces([v.x for v in verbs], [v.batch for v in verbs])

    def _by_turn(self, group: list[int], verbs: list[Gradient]) -> tuple[list[int], list[Gradient]]:
        assert self._events is not None
        order = np.argsort(np.frombuffer(self._events.times)[group], kind="stable").tolist()
        return [group[k] for k in order], [verbs[k] for k in order]

    def _plan(self, piece: PlannedPiece) -> None:
        self._queue.append(piece)
        self._planned.update(dict.fromkeys(piece.clients, piece))

    def _verbs(self, piece: PlannedPiece) -> list[Gradient]:
        if piece.verbs is None:
            piece.verbs = [_gradient(self._records[k].parked) for k in piece.clients]
        return piece.verbs

    def _group_of(self, i: int) -> list[int]:
        """Whose gradients to plan with client i's: everybody's, or as many as may wait in memory."""
        if self._divisible is not None or len(self._pending) <= self._most:
            group, self._pending = self._pending, []
            return group
        group = [i, *(k for k in self._pending if k != i)][: self._most]
        chosen = set(group)
        self._pending = [k for k in self._pending if k not in chosen]
        return group

    def forget(self, i: int) -> None:
        """Client i was lost: it needs no gradient any more. Its piece stays what it is, for the others."""
        self._computed.pop(i, None)
        piece = self._planned.pop(i, None)
        if piece is not None:
            self._verbs(piece)
            piece.clients[piece.clients.index(i)] = NOBODY
            if all(k == NOBODY for k in piece.clients):
                self._drop(piece)
        if i in self._pending:
            self._pending.remove(i)

    def _drop(self, piece: PlannedPiece) -> None:
        """Nobody is left who needs a piece: it is in nobody's way any more."""
        if piece.task is None:
            self._leave_queue(piece)
        else:
            self._helpers.finish(piece.task)
            piece.task = None

    def clients(self) -> set[int]:
        """Who is parked at a gradient."""
        return {*self._pending, *self._planned, *self._computed}

    def take_loss(self) -> float | None:
        """The mean loss of the batches since the last call."""
        mean = self._loss_sum / self._loss_count if self._loss_count else None
        self._loss_sum, self._loss_count = 0.0, 0
        return mean

    def state(self, pool: Pool) -> Tree:
        for piece in {
            id(piece): piece for piece in self._planned.values() if NOBODY in piece.clients
        }.values():
            self._compute(next(i for i in piece.clients if i != NOBODY))  # nobody else has its model
        planned = {id(piece): piece for piece in self._planned.values()}
        return {
            "pending": list(self._pending),
            "planned": [[piece.way, list(piece.clients)] for piece in planned.values()],
            "computed": [[i, pack_slope(slope, pool)] for i, slope in self._computed.items()],
            "loss_sum": pack_number(self._loss_sum),
            "loss_count": self._loss_count,
        }

    def restore(self, saved: Saved) -> None:
        n = len(self._records)
        self._pending = saved["pending"].clients(n)
        self._computed = {i: unpack_slope(slope) for i, slope in saved["computed"].pairs(n)}
        if "planned" in saved:  # as of this version
            for item in saved["planned"].items():
                way, clients = item.items(2)
                members = clients.clients(n)
                both = [i for i in members if i in self._planned]
                if both or not members or way.text() not in ("", "loop", "batched"):
                    item.fail("is no piece of a group")
                self._plan(PlannedPiece(way.text(), members, None))
        both = [i for i in self._pending if i in self._computed or i in self._planned]
        both += [i for i in self._planned if i in self._computed]
        if both:
            saved["pending"].fail(f"names client {both[0]}, whose gradient is computed")
        self._loss_sum = saved["loss_sum"].any_number()
        self._loss_count = saved["loss_count"].integer()


def _gradient(parked: Gradient | Overlapped) -> Gradient:
    return parked.gradient if isinstance(parked, Overlapped) else parked
