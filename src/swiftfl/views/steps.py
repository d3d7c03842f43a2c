"""The rows of steps of one run, in blocks, so that those of a moment are found without looking at all."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from swiftfl.errors import UserError
from swiftfl.record.facts import ROW, FactsReader, Layout, Table, join, no_clients, no_edges
from swiftfl.views.spreading import Floats

BLOCK = 32_768
"""Rows of a block."""
MOST_ROWS = 6_000_000
"""More are joined, two and two: a dashboard that is left open stays within its memory."""
_LATEST = 1e12  # seconds; what lies beyond is no time of a run
_log = logging.getLogger(__name__)


@dataclass
class Block:
    """Rows, and the time within which all of them lie."""

    rows: Table
    begin: float
    end: float


class Steps:
    """Follows the facts of a run folder; `version` changes whenever rows were added.

    Those who keep sums over rows ask for what is new since their last look (`since`); `generation` changes
    where all that was added before is to be forgotten.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self.reader = FactsReader(run)
        self.blocks: list[Block] = []
        self.count = self.version = self.generation = 0
        self.end = 0.0
        self._open: Table = np.zeros(0, ROW)
        self._filled = 0
        self._problems: set[str] = set()

    @property
    def layout(self) -> Layout | None:
        """None where there are no facts, or none that can be read."""
        try:
            layout = self.reader.layout
        except UserError as error:
            self._tell(error)
            return None
        return layout

    def poll(self) -> None:
        """Take up the rows that are new."""
        if self.layout is None:
            return
        try:
            while True:
                update = self.reader.poll()
                if update.restarted:
                    self._clear()
                self.add(update.rows)
                if not update.more:
                    return
        except UserError as error:
            self._tell(error)

    def tables(self, layout: Layout) -> tuple[Table, Table]:
        """How clients and edges stand, as many as the layout has; one that cannot be read is an empty one."""
        clients, edges = no_clients(layout.clients), no_edges(layout.edges)
        for records, read in ((clients, self.reader.clients), (edges, self.reader.edges)):
            try:
                found = read()[: len(records)]
            except UserError as error:
                self._tell(error)
            else:
                records[: len(found)] = found  # fewer where the run was replaced just now
        return clients, edges

    def add(self, rows: Table) -> None:
        rows = rows[(np.abs(rows["start"]) < _LATEST) & (ends(rows) < _LATEST)] if len(rows) else rows
        if len(rows) == 0:
            return
        self.version += 1
        self.count += len(rows)
        self._append(_by_time(rows))
        if self.count > MOST_ROWS:
            self._shrink()

    def since(self, generation: int, known: int) -> Iterator[Table]:
        """The rows after the first `known` ones, all of them if the generation is another one."""
        skip = known if generation == self.generation else 0
        for block in self.blocks:
            if skip < len(block.rows):
                yield block.rows[skip:]
            skip = max(skip - len(block.rows), 0)

    def about(self, begin: float, end: float) -> int:
        """How many rows there are at most between two times."""
        return sum(len(block.rows) for block in self.blocks if block.end > begin and block.begin < end)

    def between(self, begin: float, end: float, first: int, last: int) -> Iterator[Table]:
        """The rows that touch a stretch of time, of clients `first` to `last`."""
        for block in self.blocks:
            if block.end > begin and block.begin < end:
                rows = block.rows
                there = (rows["start"] < end) & (ends(rows) > begin)
                there &= (rows["client"] >= first) & (rows["client"] <= last)
                yield rows if there.all() else rows[there]

    def newest(self, client: int, most: int) -> Table:
        """The last rows of a client, in the order of time."""
        parts: list[Table] = []
        found = 0
        for block in reversed(self.blocks):
            part = block.rows[block.rows["client"] == client]
            parts.append(part)
            found += len(part)
            if found >= 2 * most:
                break
        rows = np.concatenate(parts) if parts else np.zeros(0, ROW)
        return rows[np.argsort(rows["start"], kind="stable")][-most:]

    def _append(self, rows: Table) -> None:
        """Into the last block as long as it has room."""
        while len(rows):
            if self._filled == len(self._open):
                self._open, self._filled = np.zeros(BLOCK, ROW), 0
                self.blocks.append(Block(self._open[:0], np.inf, -np.inf))
            part = rows[: len(self._open) - self._filled]
            self._open[self._filled : self._filled + len(part)] = part
            self._filled += len(part)
            block = self.blocks[-1]
            block.rows = self._open[: self._filled]
            block.begin = min(block.begin, float(part["start"].min()))
            block.end = max(block.end, float(ends(part).max()))
            self.end = max(self.end, block.end)
            rows = rows[len(part) :]

    def _clear(self) -> None:
        self.blocks, self.count, self.end = [], 0, 0.0
        self._open, self._filled = np.zeros(0, ROW), 0
        self.generation += 1
        self.version += 1

    def _shrink(self) -> None:
        rows = np.concatenate([block.rows for block in self.blocks])
        self._clear()
        while len(rows) > MOST_ROWS // 2:
            fewer = join(rows, over_gaps=True)
            if len(fewer) == len(rows):  # as many clients as rows
                fewer = rows[-MOST_ROWS // 2 :]
            rows = fewer
        _log.info("%s: rows of steps were joined to %d", self._run, len(rows))
        self.add(rows)

    def _tell(self, error: UserError) -> None:
        """Each problem once."""
        if str(error) not in self._problems:
            self._problems.add(str(error))
            _log.warning("%s", error)


def ends(rows: Table) -> Floats:
    """When the last second of each row is over."""
    total: Floats = (
        rows["start"] + rows["compute"].astype(np.float64) + rows["waiting"] + rows["communication"]
    )
    return total


def _by_time(rows: Table) -> Table:
    """In the order of time, where they are not nearly so: one writer's rows after another's."""
    edges = rows["start"][::BLOCK]
    if len(edges) > 2 and bool((np.diff(edges) < 0).any()):
        return rows[np.argsort(rows["start"], kind="stable")]
    return rows
