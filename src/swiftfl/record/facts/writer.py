"""Writing facts: rows of steps in chunks, tables in place, in bounded space.

Nothing is flushed to the disk itself (`fsync`): facts are there to be looked at, a reader on this machine
sees what was written at once, and a client that runs must not wait for a disk.
"""

from __future__ import annotations

import contextlib
import errno
import os
from array import array
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from swiftfl.errors import UserError
from swiftfl.files import read_text_file, reported, write_atomically
from swiftfl.record.facts.format import (
    CLIENTS,
    EDGES,
    FACTS,
    LAYOUT,
    ROW,
    Layout,
    Numbers,
    Table,
    not_replaced,
    parse_steps_file,
    steps_file,
)
from swiftfl.record.facts.joining import join

SEGMENTS = 16
"""Files of a writer, at most; then two are joined."""
_COLUMNS = ("client", "c", "loss", "start", "compute", "waiting", "communication", "age")
_MOST_SEGMENTS_AT_ONCE = 4  # that one call writes to a file: nobody waits while many files are joined
_MOST_BUFFERED = 1 << 20  # rows; more are dropped, where the disk takes none


class StepsWriter:
    """The rows of one writer, in files of at most `limit` bytes together, if that is some rows per client.

    `add` only puts a few numbers into a buffer; `flush` writes them. An error of the disk is a `UserError`;
    what was not written is tried again with the next flush.
    """

    def __init__(self, folder: Path, writer: str, limit: int) -> None:
        self.folder, self.writer = folder, writer
        self._limit = limit
        self._segment_bytes = max(limit // SEGMENTS // ROW.itemsize, 1) * ROW.itemsize
        self._buffer = array("d")
        self.add_row = self._buffer.extend
        """Takes (client, c, loss, start, compute, waiting, communication, age) of a step; made to be fast."""
        self._segments = self._left_by_others()
        with reported(folder):
            self._sizes = {numbers: self._file(numbers).stat().st_size for numbers in self._segments}
        self._number = self._segments[-1][1] + 1 if self._segments else 1
        self._handle: int | None = None
        self._size = 0

    def add(
        self,
        client: int,
        c: int,
        start: float,
        compute: float,
        waiting: float,
        communication: float,
        loss: float = float("nan"),
        age: float = float("nan"),
    ) -> None:
        self.add_row((client, c, loss, start, compute, waiting, communication, age))

    def __len__(self) -> int:
        """Rows that are not written yet."""
        return len(self._buffer) // len(_COLUMNS)

    def flush(self) -> None:
        """Write what was added since the last time; begin a new file where this one is full."""
        if self._buffer:
            rows, written = _rows(self._buffer), 0
            most = self._segment_bytes // ROW.itemsize * _MOST_SEGMENTS_AT_ONCE
            try:
                while written < len(rows):
                    self._append(rows[written : written + most].tobytes())
                    written += most
            finally:
                del self._buffer[: written * len(_COLUMNS)]

    def write(self, rows: Table) -> None:
        """Write rows at once."""
        self.flush()
        for begin in range(0, len(rows), self._segment_bytes // ROW.itemsize):
            self._append(rows[begin : begin + self._segment_bytes // ROW.itemsize].tobytes())

    def close(self) -> None:
        """Write what is left; may be called again."""
        try:
            self.flush()
        finally:
            if self._handle is not None:
                os.close(self._handle)
                self._handle = None

    def _append(self, data: bytes) -> None:
        try:
            with reported(self.folder):
                self._write(data)
        except UserError:
            if len(self) > _MOST_BUFFERED:
                del self._buffer[:]
            raise

    def _write(self, data: bytes) -> None:
        if self._handle is not None and not self._has_room(len(data)):
            self._end_file()
        if self._handle is None:
            self._open(len(data))
        assert self._handle is not None
        if os.write(self._handle, data) < len(data):
            os.ftruncate(self._handle, self._size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._size += len(data)
        self._sizes[self._segments[-1]] = self._size
        if self._size >= self._segment_bytes:
            self._end_file()

    def _end_file(self) -> None:
        assert self._handle is not None
        os.close(self._handle)
        self._handle = None

    def _has_room(self, size: int) -> bool:
        return sum(self._sizes.values()) + size <= self._limit

    def _file(self, numbers: Numbers) -> Path:
        return self.folder / steps_file(self.writer, *numbers)

    def _open(self, size: int) -> None:
        """The next file; before it, older ones are joined until there are few enough and so much has room."""
        while len(self._segments) > 1 and (len(self._segments) >= SEGMENTS or not self._has_room(size)):
            self._join_two()
        if not self._has_room(size):  # more clients than rows: joining again and again would gain nothing
            self._limit = 2 * (sum(self._sizes.values()) + size)
        name = self.folder / steps_file(self.writer, self._number, self._number)
        self._handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o666)
        self._segments.append((self._number, self._number))
        self._sizes[self._segments[-1]] = 0
        self._number += 1
        self._size = 0

    def _left_by_others(self) -> list[Numbers]:
        """The files of earlier sessions; those that were replaced are removed."""
        found = _files_of(self.folder).get(self.writer, [])
        kept = not_replaced(found)
        for numbers in set(found).difference(kept):
            (self.folder / steps_file(self.writer, *numbers)).unlink(missing_ok=True)
        return kept

    def _join_two(self) -> None:
        at = _pair_to_join(self._segments)
        (first, middle), (begin, last) = self._segments[at : at + 2]
        parts = [self._file((first, middle)), self._file((begin, last))]
        rows = np.concatenate([read_rows(part) for part in parts])
        joined = join(rows)
        if joined.nbytes > 0.75 * rows.nbytes:
            joined = join(rows, over_gaps=True)
        replace_file(self._file((first, last)), joined.tobytes())
        for part in parts:
            part.unlink(missing_ok=True)
        self._segments[at : at + 2] = [(first, last)]
        del self._sizes[(first, middle)], self._sizes[(begin, last)]
        self._sizes[(first, last)] = joined.nbytes


class TableFile:
    """Records that are overwritten in place, all of them or those from some place on."""

    def __init__(self, file: Path) -> None:
        self._file = file
        with reported(file):
            self._handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def write(self, records: Table, at: int = 0) -> None:
        data = records.tobytes()
        with reported(self._file):
            if os.pwrite(self._handle, data, at * records.dtype.itemsize) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        """May be called again."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


class FactsWriter:
    """The facts of a run folder, as the process that leads the run writes them.

    Args:
        run: the run folder.
        layout: who is there; a run that is resumed goes on with the next session.
        limit: how many bytes the files of steps may have, of all writers together.
    """

    def __init__(self, run: Path, layout: Layout, limit: int) -> None:
        self.folder, self.limit = run / FACTS, limit
        with reported(self.folder):
            self.folder.mkdir(exist_ok=True)
        self.layout = layout
        write_atomically(self.folder / LAYOUT, layout.to_json())
        self.clients = TableFile(self.folder / CLIENTS)
        self.edges = TableFile(self.folder / EDGES)

    @staticmethod
    def read_layout(run: Path) -> Layout | None:
        """What an earlier session wrote; None if there is nothing that can be read."""
        file = run / FACTS / LAYOUT
        try:
            return Layout.from_json(read_text_file(file), str(file)) if file.is_file() else None
        except UserError:
            return None

    def steps(self, writer: str = "all", writers: int = 1) -> StepsWriter:
        return StepsWriter(self.folder, writer, self.limit // writers)

    def close(self) -> None:
        self.clients.close()
        self.edges.close()


def _files_of(folder: Path) -> dict[str, list[Numbers]]:
    """The numbers of the files of each writer."""
    found: dict[str, list[Numbers]] = {}
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            name = parse_steps_file(entry.name)
            if name is not None and entry.is_file(follow_symlinks=False):
                found.setdefault(name[0], []).append(name[1:])
    return found


def read_rows(file: Path) -> Table:
    """The complete rows of a file that this writer, or an earlier session, has written."""
    data = file.read_bytes()
    return np.frombuffer(data[: len(data) // ROW.itemsize * ROW.itemsize], ROW)


def replace_file(file: Path, data: bytes) -> None:
    """The file appears complete; readers never see a part of it."""
    fresh = file.with_name(f".{file.name}.new")
    try:
        fresh.write_bytes(data)
        fresh.replace(file)
    finally:
        fresh.unlink(missing_ok=True)


def keep_steps(run: Path, counters: NDArray[np.int64]) -> None:
    """Take out what is not part of a run that goes on from a save: client i's steps from `counters[i]` on."""
    folder = run / FACTS
    with reported(folder):
        for writer, files in _files_of(folder).items():
            for numbers in not_replaced(files):
                file = folder / steps_file(writer, *numbers)
                rows = read_rows(file)
                kept = _until(rows, counters)
                if len(kept) < len(rows) or not np.array_equal(kept["steps"], rows["steps"]):
                    replace_file(file, kept.tobytes())


def _until(rows: Table, counters: NDArray[np.int64]) -> Table:
    """The rows of steps before the counters; one that was joined over the border is cut in proportion."""
    rows = rows[rows["client"] < len(counters)]
    left = np.clip(counters[rows["client"]] - rows["c"].astype(np.int64), 0, rows["steps"])
    kept, left = rows[left > 0], left[left > 0]
    cut: Table = kept.copy()
    share = left / kept["steps"]
    for name in ("compute", "waiting", "communication"):
        cut[name] = kept[name] * share
    cut["steps"] = left
    return cut


def _pair_to_join(segments: list[Numbers]) -> int:
    """Where the two neighbours are that are joined: the oldest of the finest ones.

    So the whole past has about the same fineness, and what is new is finer.
    """
    sizes = [last - first + 1 for first, last in segments]
    pairs = [at for at in range(len(sizes) - 1) if sizes[at] == sizes[at + 1]]
    return min(pairs, key=lambda at: (sizes[at], at), default=0)


def _rows(buffer: array[float]) -> Table:
    numbers = np.frombuffer(buffer, np.float64).reshape(-1, len(_COLUMNS))
    rows = np.empty(len(numbers), ROW)
    rows["steps"] = 1
    with np.errstate(over="ignore"):
        for column, name in enumerate(_COLUMNS):
            rows[name] = numbers[:, column]
    return rows
