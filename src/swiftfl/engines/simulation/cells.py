"""Models as cells that others may average into, locked first come, first served.

A request starts when its cells are free, and its effect is applied at once, because whoever asks later
also starts later.
"""

from __future__ import annotations

from collections.abc import Sequence

from swiftfl.costs import Costs
from swiftfl.engines.discard import moved
from swiftfl.engines.saved import Saved, Tree
from swiftfl.engines.setup import KeepBuffers
from swiftfl.engines.simulation.mailboxes import Links
from swiftfl.engines.simulation.record import ClientRecord
from swiftfl.vector import Vector
from swiftfl.verbs import Add


class Cells:
    """A client's cell is its record's model.

    Here is until when each is in use, and how many steps others took between a load and its add.
    """

    __slots__ = ("_busy", "_costs", "_keep", "_links", "_loaded_at", "_records", "_size", "largest_delay")

    def __init__(
        self,
        records: Sequence[ClientRecord],
        costs: Costs,
        links: Links,
        size: int,
        keep_buffers: KeepBuffers,
    ) -> None:
        self._records, self._costs, self._links, self._size = records, costs, links, size
        self._keep = keep_buffers
        self._busy = [0.0] * len(records)
        self._loaded_at = [0] * len(records)
        self.largest_delay = 0

    def load(self, record: ClientRecord, iteration: int) -> Vector:
        self._wait_for(record)
        self._loaded_at[record.index] = iteration
        return record.model

    def average(self, record: ClientRecord, k: int) -> tuple[float, float]:
        """Average a client's cell with k's; when that begins, and how long it takes."""
        i, now = record.index, record.clock.now
        other = self._records[k]
        if not (other.present and self._links.passes(i, k)):
            record.traffic.average_with(self._size, answered=False)
            # The call to a client that is gone fails when the loss is noticed.
            return (now if other.present else max(now, other.lost_until)), 0.0
        record.traffic.average_with(self._size)
        other.traffic.answer_average(self._size)
        costs, c = self._costs, record.start.c
        journey = costs.transit(i, k, self._size) + costs.delay(i, k, c)
        seconds = 2 * journey + costs.mix
        began = self._reserve((i, k), now, seconds)
        mean = 0.5 * (record.model + other.model)
        record.model, other.model = self._keep(mean, record.model), self._keep(mean, other.model)
        return began, seconds

    def add(self, record: ClientRecord, verb: Add, iteration: int) -> Vector:
        self._wait_for(record)
        self.largest_delay = max(self.largest_delay, iteration - self._loaded_at[record.index])
        after = moved(record.model, verb.move, verb.statistics)
        record.move_left_out = record.move_left_out or after is record.model
        record.model = after
        return after

    def _wait_for(self, record: ClientRecord) -> None:
        """A client waits until its cell is free."""
        clock = record.clock
        clock.wait(self._reserve((record.index,), clock.now, 0.0) - clock.now)

    def _reserve(self, cells: tuple[int, ...], now: float, seconds: float) -> float:
        """Keep the cells for so many seconds from when they are free; when that is."""
        free = max(now, *(self._busy[k] for k in cells))
        for k in cells:
            self._busy[k] = free + seconds
        return free

    def state(self) -> Tree:
        return {
            "busy": list(self._busy),
            "loaded_at": list(self._loaded_at),
            "largest_delay": self.largest_delay,
        }

    def restore(self, saved: Saved) -> None:
        n = len(self._busy)
        self._busy = [item.number(0.0) for item in saved["busy"].items(n)]
        self._loaded_at = [item.integer() for item in saved["loaded_at"].items(n)]
        self.largest_delay = saved["largest_delay"].integer()
