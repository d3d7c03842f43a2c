"""What a live client saw, written down so that its run can be repeated (`engines.live.replay`).

One file per client, one JSON list per line, each written with a single system call *before* the model
that depends on it is published: whatever a neighbour may have used is on record, even if this client is
killed at that moment. Kinds of lines:

    ["start", life, session, c, how, ...]   how: "initial", "saved" (its life and counter) or "model" (whose,
                                     and which version); a run that is resumed is in its next session
    ["terms", c, scale, own, [[k, coefficient], ...]]     from step c on
    ["saw", c, [[k, version], ...]]  the models that were averaged at step c
    ["met", c, [[k, c], ...]]        who took part in round c
    ["end", c]                       the last step was c - 1

A version holds the counter of the step before which the model was published, and the *life* of its
client: how often it has been started again (a client that goes back to a checkpoint publishes the same
counters with other models).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from swiftfl.vector import Weights

_COUNTERS = 1 << 40


def version(life: int, c: int) -> int:
    """The version of the model that a client had at the start of step c of this life.

    >>> split(version(life=2, c=77))
    (2, 77)
    """
    return life * _COUNTERS + c


def split(version: int) -> tuple[int, int]:
    """Life and counter of a version."""
    return divmod(version, _COUNTERS)


def journal_file(folder: Path, client: int) -> Path:
    return folder / f"client-{client:04d}.jsonl"


def count_lives(folder: Path, client: int) -> int:
    """How often a client has been started, as its record tells."""
    file = journal_file(folder, client)
    if not file.is_file():
        return 0
    with file.open() as lines:
        return sum(line.startswith('["start"') for line in lines)


class Journal:
    """The record of one client; on a full disk it ends, with a warning, and training goes on."""

    def __init__(self, file: Path | None, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._file = file
        self._descriptor: int | None = None
        if file is not None:
            try:
                self._descriptor = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
                if os.fstat(self._descriptor).st_size:
                    os.write(self._descriptor, b"\n")  # whatever was torn before ends here
            except OSError as error:
                self._give_up(error)

    def start(self, life: int, session: int, c: int, how: str, *source: int) -> None:
        self._line(["start", life, session, c, how, *source])

    def terms(self, c: int, w: Weights, scale: float) -> None:
        self._line(["terms", c, scale, w.own, [[k, value] for k, value in w.of.items()]])

    def saw(self, c: int, used: Mapping[int, int]) -> None:
        self._pairs(b"saw", c, used)

    def met(self, c: int, used: Mapping[int, int]) -> None:
        self._pairs(b"met", c, used)

    def end(self, c: int) -> None:
        self._line(["end", c])

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _line(self, row: list[object]) -> None:
        if self._descriptor is None:
            return
        self._write(json.dumps(row, separators=(",", ":")).encode() + b"\n")

    def _pairs(self, kind: bytes, c: int, pairs: Mapping[int, int]) -> None:
        """A line of every step, made by hand: JSON's encoder would cost as much as an averaging."""
        if self._descriptor is not None:
            listed = b",".join([b"[%d,%d]" % pair for pair in pairs.items()])
            self._write(b'["%b",%d,[%b]]\n' % (kind, c, listed))

    def _write(self, line: bytes) -> None:
        assert self._descriptor is not None
        try:
            if os.write(self._descriptor, line) < len(line):
                raise OSError("the disk is full")
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self.close()
        self._warn(f"cannot write {self._file}: {error}; the run goes on but cannot be replayed")
