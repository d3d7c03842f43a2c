"""Reading facts while others write them. A reader never writes, locks or waits."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from swiftfl.errors import UserError
from swiftfl.files import read_text_file, reported
from swiftfl.record.facts.format import (
    CLIENT,
    CLIENTS,
    EDGE,
    EDGES,
    FACTS,
    LAYOUT,
    ROW,
    Layout,
    Numbers,
    Table,
    no_clients,
    no_edges,
    not_replaced,
    parse_steps_file,
    steps_file,
)

_MOST_LAYOUT = 2**30
_MOST_AT_ONCE = 64 << 20
_MOST_SECONDS = 1e12  # more are no time of a run


@dataclass(frozen=True)
class Update:
    """What is new since the last time.

    Attributes:
        rows: rows of steps, in no particular order.
        restarted: whether they are all rows so far, and what was read before is to be forgotten.
        more: whether there is more to read at once.
    """

    rows: Table
    restarted: bool
    more: bool


class FactsReader:
    """Follows the facts of a run folder.

    `poll` gives the rows that have come since the last call. Where files were joined before their end was
    read, or the run was resumed, everything is read anew. What is not complete is left for later; rows that
    cannot be right (a client that is not there, a time that is not finite) are left out. What is no
    file of facts at all is a `UserError`.
    """

    def __init__(self, run: Path, most_at_once: int = _MOST_AT_ONCE) -> None:
        self.folder = run / FACTS
        self._most = max(most_at_once // ROW.itemsize, 1) * ROW.itemsize
        self._layout: Layout | None = None
        self._layout_mark: tuple[int, int, int] | None = None
        self._read: dict[str, dict[Numbers, int]] = {}  # bytes that were read, by writer and file
        self._ends: dict[str, int] = {}  # by writer, the number up to which all files were read to their ends
        self._restarted = True

    @property
    def layout(self) -> Layout | None:
        """None as long as the run has not written it.

        It is written once by each start of a run, so another file is that of a run that was resumed, or of
        another run at the same place: whatever was read before is to be forgotten.
        """
        file = self.folder / LAYOUT
        try:
            if self.folder.is_symlink():
                raise UserError(f"cannot read {self.folder}: it is a link")
            found = file.lstat()
        except FileNotFoundError:
            if self._layout is not None:
                self._layout = self._layout_mark = None
                self._restart()
            return None
        except OSError as error:
            raise UserError(f"cannot read {file}: {error.strerror or error}") from None
        mark = (found.st_ino, found.st_size, found.st_mtime_ns)
        if mark != self._layout_mark:
            text = read_text_file(file, _MOST_LAYOUT, follow_links=False)
            self._layout, self._layout_mark = Layout.from_json(text, str(file)), mark
            self._restart()
        return self._layout

    def poll(self) -> Update:
        """The rows that are new; nothing as long as there is no layout."""
        layout = self.layout
        if layout is None:
            return Update(np.zeros(0, ROW), False, False)
        files = self._files()
        if any(self._lost_track(writer, sizes) for writer, sizes in files.items()):
            self._restart()
        parts: list[Table] = [np.zeros(0, ROW)]
        room = self._most
        for writer, sizes in files.items():
            read = self._read.setdefault(writer, {})
            for numbers, size in sizes.items():
                begin = read.get(numbers, 0)
                if room > 0 and size > begin and not self._ended(writer, numbers):
                    parts.append(self._take(writer, numbers, begin, min(room, size - begin)))
                    read[numbers] = begin + parts[-1].nbytes
                    room -= parts[-1].nbytes
            self._note_ends(writer, sizes)
        restarted, self._restarted = self._restarted, False
        return Update(self._right(np.concatenate(parts), layout.clients), restarted, room <= 0)

    def rows(self) -> Table:
        """All rows so far, whatever `poll` has given already."""
        fresh = FactsReader(self.folder.parent)
        parts: list[Table] = []
        while True:
            update = fresh.poll()
            parts = [update.rows] if update.restarted else [*parts, update.rows]
            if not update.more:
                return np.concatenate(parts)

    def clients(self) -> Table:
        """How each client stands; one of whom nothing was written is starting.

        A time that nobody can have spent (negative, not finite) is none.
        """
        layout = self.layout
        records = no_clients(0 if layout is None else layout.clients)
        _fill(records, self._bytes(CLIENTS, len(records) * CLIENT.itemsize))
        records["state"] = np.where(records["state"] > 5, 0, records["state"])
        for name in ("compute", "communication", "waiting"):  # whoever shows them adds them up
            with np.errstate(invalid="ignore"):
                possible = (records[name] >= 0) & (records[name] < _MOST_SECONDS)
            records[name] = np.where(possible, records[name], 0.0)
        return records

    def edges(self) -> Table:
        """The newest model over each directed edge, in the order of the layout's indices."""
        layout = self.layout
        records = no_edges(0 if layout is None else layout.edges)
        _fill(records, self._bytes(EDGES, len(records) * EDGE.itemsize))
        return records

    # --- files -----------------------------------------------------------------------------------

    def _files(self) -> dict[str, dict[Numbers, int]]:
        """The files of steps by writer, in order, with their sizes; without those that were replaced."""
        found: dict[str, dict[Numbers, int]] = {}
        with reported(self.folder, "read"):
            # All names first: where there is a next file, the one before it had its last row by then.
            for name in [entry.name for entry in self.folder.iterdir()]:
                file = parse_steps_file(name)
                size = None if file is None else self._size(name)
                if file is not None and size is not None:
                    found.setdefault(file[0], {})[file[1:]] = size // ROW.itemsize * ROW.itemsize
        return {w: {file: sizes[file] for file in not_replaced(sizes)} for w, sizes in sorted(found.items())}

    def _size(self, name: str) -> int | None:
        """None for what is no file, or is gone because it was joined just now."""
        try:
            known = (self.folder / name).lstat()
        except FileNotFoundError:
            return None
        return known.st_size if stat.S_ISREG(known.st_mode) else None

    def _lost_track(self, writer: str, sizes: dict[Numbers, int]) -> bool:
        """Whether files were joined of which only a part was read: nobody can tell what is new in them."""
        read, ended = self._read.get(writer, {}), self._ends.get(writer, 0)
        gone = any(file not in sizes and file[1] > ended for file in read)
        return gone or any(first <= ended < last and (first, last) not in read for first, last in sizes)

    def _ended(self, writer: str, numbers: Numbers) -> bool:
        return numbers[1] <= self._ends.get(writer, 0)

    def _note_ends(self, writer: str, sizes: dict[Numbers, int]) -> None:
        """Files before the newest get no more rows: those that were read whole are never read again."""
        read = self._read[writer]
        for numbers in list(sizes)[:-1]:
            if not self._ended(writer, numbers):
                if read.get(numbers, 0) < sizes[numbers]:
                    break
                self._ends[writer] = numbers[1]
        self._read[writer] = {file: size for file, size in read.items() if not self._ended(writer, file)}

    def _take(self, writer: str, numbers: Numbers, begin: int, size: int) -> Table:
        return _whole(self._bytes(steps_file(writer, *numbers), size, begin), ROW)

    def _bytes(self, name: str, size: int, begin: int = 0) -> bytes:
        """At most so many bytes of a regular file; none if it is not there (yet, or any more)."""
        file = self.folder / name
        with reported(file, "read"):
            try:
                handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
            except FileNotFoundError:
                return b""
            try:
                known = os.fstat(handle)
                if not stat.S_ISREG(known.st_mode):
                    raise UserError(f"cannot read {file}: not a regular file")
                return os.pread(handle, max(min(size, known.st_size - begin), 0), begin)
            finally:
                os.close(handle)

    def _restart(self) -> None:
        self._read, self._ends = {}, {}
        self._restarted = True

    def _right(self, rows: Table, clients: int) -> Table:
        """Without rows that no run can have written."""
        good = (rows["client"] < clients) & (rows["steps"] > 0) & np.isfinite(rows["start"])
        for name in ("compute", "waiting", "communication"):
            good &= (rows[name] >= 0) & np.isfinite(rows[name])
        return rows if good.all() else rows[good]


def _whole(data: bytes, kind: np.dtype[np.void]) -> Table:
    """The complete records that there are."""
    return np.frombuffer(data, kind, count=len(data) // kind.itemsize)


def _fill(records: Table, data: bytes) -> None:
    """Take the complete records that there are; others stay as they were."""
    whole = _whole(data, records.dtype)
    records[: len(whole)] = whole
