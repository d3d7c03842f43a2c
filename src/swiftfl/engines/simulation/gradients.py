"""Gradients that clients are parked for, computed together.

A client's gradient depends on nothing that happens before it goes on. So pending gradients are held
back; when the first of them is needed, all are computed in one call (or as many as may wait in memory).
"""

from __future__ import annotations

from collections.abc import Sequence

from swiftfl.engines.saved import Pool, Saved, Tree, pack_number
from swiftfl.engines.simulation.record import ClientRecord
from swiftfl.engines.simulation.replies import pack_slope, unpack_slope
from swiftfl.sample import Slope
from swiftfl.verbs import Gradient, Overlapped
from swiftfl.workload.base import Workload

WAITING_BYTES = 256 << 20  # of gradients that are computed before they are needed


class PendingGradients:
    """Who is parked at a gradient, what was computed already, and the losses of the batches."""

    __slots__ = ("_computed", "_loss_count", "_loss_sum", "_most", "_pending", "_records", "_workload")

    def __init__(self, records: Sequence[ClientRecord], workload: Workload, model_bytes: int) -> None:
        self._records, self._workload = records, workload
        self._most = max(1, WAITING_BYTES // model_bytes)
        self._pending: list[int] = []
        self._computed: dict[int, Slope] = {}
        self._loss_sum = 0.0
        self._loss_count = 0

    def add(self, i: int) -> None:
        """Client i is parked at a gradient."""
        self._pending.append(i)

    def take(self, i: int) -> Slope:
        """The gradient that client i is parked for; the other pending ones are computed with it."""
        slope = self._computed.pop(i, None)
        if slope is None:
            self._compute_with(i)
            slope = self._computed.pop(i)
        self._loss_sum += slope.loss
        self._loss_count += 1
        return slope

    def _compute_with(self, i: int) -> None:
        group = self._group_of(i)
        verbs = [_gradient(self._records[k].parked) for k in group]
        slopes = self._workload.gradients([v.x for v in verbs], [v.batch for v in verbs])
        self._computed.update(zip(group, slopes, strict=True))

    def _group_of(self, i: int) -> list[int]:
        """Whose gradients to compute with client i's: everybody's, or as many as may wait in memory."""
        if len(self._pending) <= self._most:
            group, self._pending = self._pending, []
            return group
        group = [i, *(k for k in self._pending if k != i)][: self._most]
        chosen = set(group)
        self._pending = [k for k in self._pending if k not in chosen]
        return group

    def forget(self, i: int) -> None:
        """Client i was lost: it needs no gradient any more."""
        self._computed.pop(i, None)
        if i in self._pending:
            self._pending.remove(i)

    def clients(self) -> set[int]:
        """Who is parked at a gradient."""
        return {*self._pending, *self._computed}

    def take_loss(self) -> float | None:
        """The mean loss of the batches since the last call."""
        mean = self._loss_sum / self._loss_count if self._loss_count else None
        self._loss_sum, self._loss_count = 0.0, 0
        return mean

    def state(self, pool: Pool) -> Tree:
        return {
            "pending": list(self._pending),
            "computed": [[i, pack_slope(slope, pool)] for i, slope in self._computed.items()],
            "loss_sum": pack_number(self._loss_sum),
            "loss_count": self._loss_count,
        }

    def restore(self, saved: Saved) -> None:
        n = len(self._records)
        self._pending = saved["pending"].clients(n)
        self._computed = {i: unpack_slope(slope) for i, slope in saved["computed"].pairs(n)}
        both = [i for i in self._pending if i in self._computed]
        if both:
            saved["pending"].fail(f"names client {both[0]}, whose gradient is computed")
        self._loss_sum = saved["loss_sum"].any_number()
        self._loss_count = saved["loss_count"].integer()


def _gradient(parked: Gradient | Overlapped) -> Gradient:
    return parked.gradient if isinstance(parked, Overlapped) else parked
