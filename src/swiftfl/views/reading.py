"""Files of a run folder, read while others write them, and whatever they hold: a reader shows what it can.

Only regular files are read. A link may point to a file of this machine that is nobody's business.

A file that is not there, not complete or no JSON is nothing (None), not an error: the next look may find it.
"""

from __future__ import annotations

import json
import logging
import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from swiftfl.errors import UserError
from swiftfl.files import open_regular, read_text_file

Mark = tuple[int, int, int]
"""Tells versions of a file apart: inode, size, time of its last change."""
_MOST_OBJECT = 64 << 20
_MOST_LINE = 1 << 20
_MOST_AT_ONCE = 16 << 20
_MOST_LINES = 500_000
_TAIL = 1024
_DEEPEST = 40
_log = logging.getLogger(__name__)


def mark_of(path: Path) -> Mark | None:
    """None where there is no regular file; links are not followed."""
    try:
        found = path.lstat()
    except (OSError, ValueError):
        return None
    return (found.st_ino, found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None


def beginning_of(path: Path, most: int) -> bytes | None:
    """The first bytes of a regular file; None where there is none."""
    try:
        handle = open_regular(path)
    except (OSError, ValueError):
        return None
    try:
        return os.read(handle, most)
    except OSError:
        return None
    finally:
        os.close(handle)


def sane(value: object, depth: int = 0) -> Any:
    """The same tree as strict JSON has it: None for NaN and infinity, and for what is nested absurdly deep.

    >>> sane({"loss": float("inf"), "lost": [3, (4.5,)]})
    {'loss': None, 'lost': [3, [4.5]]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else None
    if depth >= _DEEPEST:
        return None
    if isinstance(value, Mapping):
        return {str(key): sane(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [sane(item, depth + 1) for item in value]
    return None


def number(value: object) -> float | None:
    """A finite number, or None.

    >>> number(3), number(True), number("3"), number(float("nan"))
    (3.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e300:
        return None
    return float(value) if math.isfinite(value) else None


class ObjectFile:
    """A file that holds one JSON object and is replaced as a whole; read again only when it has changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._mark: Mark | None = None
        self._value: dict[str, Any] | None = None

    def read(self) -> dict[str, Any] | None:
        mark = mark_of(self.path)
        if mark != self._mark:
            self._mark, self._value = mark, None if mark is None else self._parsed()
        return self._value

    def _parsed(self) -> dict[str, Any] | None:
        try:
            value = sane(json.loads(read_text_file(self.path, _MOST_OBJECT, follow_links=False)))
        except (UserError, ValueError, RecursionError) as error:
            _log.debug("%s: %s", self.path, error)
            return None
        return value if isinstance(value, dict) else None


class LinesFile:
    """A file of JSON objects, one per line, that grows, and that a resumed run, or a new one, may replace.

    `rows` are those of complete lines so far; lines that are no object are left out and counted in `ignored`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, Any]] = []
        self.ignored = 0
        self._inode = -1
        self._offset = 0
        self._tail = b""  # before the offset: another file may have got the inode of one that is gone
        self._seen: Mark | None = None

    def poll(self) -> bool:
        """Read on; whether anything is new, or was replaced."""
        mark = mark_of(self.path)
        if mark == self._seen:
            return False
        self._seen = mark
        if mark is None or mark[0] != self._inode or mark[1] < self._offset:
            self._begin_again()
            self._inode = -1 if mark is None else mark[0]
        try:
            while self._read_on():
                pass
        except OSError as error:
            _log.debug("%s: %s", self.path, error)
        return True

    def _begin_again(self) -> None:
        self.rows, self._offset, self.ignored, self._tail = [], 0, 0, b""

    def _read_on(self) -> bool:
        """Take up the next complete lines; whether there may be more."""
        handle = open_regular(self.path)
        try:
            if os.pread(handle, len(self._tail), self._offset - len(self._tail)) != self._tail:
                self._begin_again()
            data = os.pread(handle, _MOST_AT_ONCE, self._offset)
        finally:
            os.close(handle)
        complete = data.rfind(b"\n") + 1
        if complete == 0:
            if len(data) < _MOST_AT_ONCE:
                return False
            complete = len(data)  # a line that never ends
        self._offset += complete
        self._tail = (self._tail + data[max(complete - _TAIL, 0) : complete])[-_TAIL:]
        for line in data[:complete].splitlines():
            self._take(line)
        return len(data) == _MOST_AT_ONCE

    def _take(self, line: bytes) -> None:
        try:
            row = json.loads(line) if len(line) <= _MOST_LINE and len(self.rows) < _MOST_LINES else None
        except (ValueError, RecursionError):
            row = None
        row = sane(row)
        if isinstance(row, dict):
            self.rows.append(row)
        elif line.strip():
            self.ignored += 1
