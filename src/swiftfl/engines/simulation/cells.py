"""Models as cells that others may average into, locked first come, first served.

A request starts when its cells are free, and its effect is applied at once, because whoever asks later
also starts later.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from swiftfl.costs import Costs
from swiftfl.engines.discard import movable, moved
from swiftfl.engines.saved import Pool, Saved, Tree
from swiftfl.engines.setup import KeepBuffers
from swiftfl.engines.simulation.mailboxes import Links
from swiftfl.engines.simulation.record import ClientRecord
from swiftfl.errors import UserError
from swiftfl.vector import Vector
from swiftfl.verbs import Add


class Cells:
    """A client's cell is its record's model.

    Here is until when each is in use, and how many steps others took between a load and its add.
    """

    __slots__ = (
        "_busy",
        "_collected",
        "_costs",
        "_keep",
        "_links",
        "_loaded_at",
        "_records",
        "_size",
        "largest_delay",
    )

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
        self._collected: dict[int, tuple[Vector, int]] = {}  # moves that wait for others, by the cell's owner
        self.largest_delay = 0

    def load(self, record: ClientRecord, owner: int | None, iteration: int) -> Vector:
        self._loaded_at[record.index] = iteration
        holder = self._holder(record, owner)
        if holder is record:
            self._wait_for(record)
        else:
            # A request and its answer; nobody else is kept from the cell meanwhile.
            costs, i, k = self._costs, record.index, holder.index
            journey = costs.transit(k, i, self._size) + costs.delay(k, i, record.start.c)
            record.clock.communicate(costs.transit(i, k, 0) + journey)
            holder.traffic.give(self._size)
        return holder.model

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
        self.largest_delay = max(self.largest_delay, iteration - self._loaded_at[record.index])
        holder = self._holder(record, verb.owner)
        if holder is record:
            self._wait_for(record)
        else:
            costs, i, k = self._costs, record.index, holder.index
            record.clock.communicate(costs.transit(i, k, self._size) + costs.delay(i, k, record.start.c))
            record.traffic.add(self._size)
        move = self._collect(holder, verb)
        if move is None:
            return holder.model
        after = moved(holder.model, move, verb.statistics)
        record.move_left_out = record.move_left_out or after is holder.model
        holder.model = after
        return after

    def _collect(self, holder: ClientRecord, verb: Add) -> Vector | None:
        """What is to be added now: this move, or those collected with it; None while there are too few."""
        if verb.together == 1 or not movable(verb):  # what is not finite is left out at once
            return verb.move
        total, count = self._collected.pop(holder.index, (np.zeros_like(verb.move), 0))
        total, count = total + verb.move, count + 1
        if count >= verb.together:
            return total
        self._collected[holder.index] = (total, count)
        return None

    def _holder(self, record: ClientRecord, owner: int | None) -> ClientRecord:
        if owner is None or owner == record.index:
            return record
        holder = self._records[owner]
        if not holder.present:
            raise UserError(
                f"client {owner}, whose cell holds the model of all, is gone: the run cannot go on"
            )
        return holder

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

    def state(self, pool: Pool) -> Tree:
        return {
            "collected": [[i, [pool.put(total), count]] for i, (total, count) in self._collected.items()],
            "busy": list(self._busy),
            "loaded_at": list(self._loaded_at),
            "largest_delay": self.largest_delay,
        }

    def restore(self, saved: Saved) -> None:
        n = len(self._busy)
        self._busy = [item.number(0.0) for item in saved["busy"].items(n)]
        self._loaded_at = [item.integer() for item in saved["loaded_at"].items(n)]
        self.largest_delay = saved["largest_delay"].integer()
        self._collected = {}
        if "collected" in saved:  # as of this version
            for i, item in saved["collected"].pairs(n):
                total, count = item.items(2)
                self._collected[i] = (total.finite(), count.integer(1))
