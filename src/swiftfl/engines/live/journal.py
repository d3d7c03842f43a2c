"""What a live client used, written down so that its run can be repeated (`engines.live.replay`).

One file per client, one JSON list per line, each written with a single system call *before* the model
that depends on it is published: whatever a neighbour may have used is on record, even if this client is
killed at that moment. Kinds of lines:

    ["start", {...}]                            an incarnation of the client: format, incarnation, session, c
                                                (its first step), from (initial, save or model) and source
    ["terms", c, scale, own, [[k, coefficient], ...]]     from step c on
    ["fetched", c, number, [[k, version], ...]]           models used from the step's inbox of this number
    ["exchanged", c, number, [[k, round], ...]]           the same, of an exchange; of a client that had
                                                          finished, the version of its last model is "fetched"
    ["ages", c, number, [[k, age], ...]]        how old the models of an inbox were, if the algorithm asked
    ["end", c]                                  the last step was c - 1

Inboxes of a step are counted from 0. An inbox may have several lines, if it was used before and after
something was published. A version holds the counter of the step before which the model was published, and
the *incarnation* of its client: how often it has been started again (a client that goes back to a save
publishes the same counters with other models). A run that is resumed is in its next session.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swiftfl.engines.terms import Terms
from swiftfl.errors import UserError
from swiftfl.vector import Weights

FORMAT = 3
_COUNTERS = 1 << 40
InboxName = tuple[int, int]
"""A step, and the number of an inbox in it."""
ModelName = tuple[int, int]
"""A client, and a version of its model."""


def version(incarnation: int, c: int) -> int:
    """The version of the model that a client had at the start of step c of this incarnation.

    >>> split(version(incarnation=2, c=77))
    (2, 77)
    """
    return incarnation * _COUNTERS + c


def split(version: int) -> tuple[int, int]:
    """Incarnation and counter of a version."""
    return divmod(version, _COUNTERS)


def journal_file(folder: Path, client: int) -> Path:
    return folder / f"client-{client:04d}.jsonl"


class Journal:
    """The record of one client; on a full disk it ends, with a warning, and training goes on."""

    def __init__(self, file: Path | None, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._file = file
        self._descriptor: int | None = None
        if file is not None:
            try:
                self._descriptor = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o666)
                if os.fstat(self._descriptor).st_size:
                    os.write(self._descriptor, b"\n")  # a line that was torn before ends here
            except OSError as error:
                self._give_up(error)

    def start(self, incarnation: int, session: int, c: int, how: str, source: Sequence[int] = ()) -> None:
        about = {"incarnation": incarnation, "session": session, "c": c, "from": how, "source": list(source)}
        self._line(["start", {"format": FORMAT, **about}])

    def terms(self, c: int, w: Weights, scale: float) -> None:
        self._line(["terms", c, scale, w.own, [[k, value] for k, value in w.of.items()]])

    def fetched(self, c: int, number: int, used: Mapping[int, int]) -> None:
        self._pairs(b"fetched", c, number, used)

    def exchanged(self, c: int, number: int, used: Mapping[int, int]) -> None:
        self._pairs(b"exchanged", c, number, used)

    def ages(self, c: int, number: int, ages: Mapping[int, float]) -> None:
        self._line(["ages", c, number, [[k, age] for k, age in ages.items()]])

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

    def _pairs(self, kind: bytes, c: int, number: int, pairs: Mapping[int, int]) -> None:
        """A line of every step, made by hand: JSON's encoder would cost as much as an averaging."""
        if self._descriptor is not None:
            listed = b",".join([b"[%d,%d]" % pair for pair in pairs.items()])
            self._write(b'["%b",%d,%d,[%b]]\n' % (kind, c, number, listed))

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


# --- reading -------------------------------------------------------------------------------------


@dataclass
class Incarnation:
    """A client from one start of its process to its end; it takes the steps from `c` up to `target`.

    One that was killed may have offered its model to others in a later round: that is its `last_offer`.
    """

    client: int
    number: int
    session: int
    c: int
    how: str
    source: tuple[int, ...]
    terms: list[tuple[int, Terms]] = field(default_factory=list)
    fetched: dict[InboxName, dict[int, int]] = field(default_factory=dict)
    exchanged: dict[InboxName, dict[int, int]] = field(default_factory=dict)
    ages: dict[InboxName, dict[int, float]] = field(default_factory=dict)
    end: int | None = None
    target: int = 0
    last_offer: int | None = None

    def terms_at(self, c: int) -> Terms:
        """What held in step c."""
        held = [terms for since, terms in self.terms if since <= c]
        if not held:
            raise UserError(f"the record of client {self.client} has no weights for step {c}")
        return held[-1]

    @property
    def recorded(self) -> int:
        """The step after the last one of which anything is on record."""
        steps = [c + 1 for c, _ in (*self.fetched, *self.exchanged)]
        return max([self.c, *steps]) if self.end is None else self.end


def read_incarnations(folder: Path, client: int, n: int) -> list[Incarnation]:
    """All incarnations of a client, in their order; none if it has no record."""
    file = journal_file(folder, client)
    if not file.is_file():
        return []
    found: list[Incarnation] = []
    lines = [line for line in file.read_text(errors="replace").split("\n") if line]
    for number, line in enumerate(lines, start=1):
        try:
            _take(found, json.loads(line), client, n)
        except (ValueError, TypeError, IndexError, KeyError, RecursionError) as error:
            if isinstance(error, UserError):
                raise
            if _ends_torn(lines, number):
                continue  # torn when its client was killed
            raise UserError(f"cannot read {file}, line {number}: {error}") from None
    return found


def _ends_torn(lines: Sequence[str], number: int) -> bool:
    """Whether this is the last line of an incarnation: the one that a kill can tear."""
    return number == len(lines) or lines[number].startswith('["start"')


def _take(found: list[Incarnation], row: list[Any], client: int, n: int) -> None:
    kind = row[0]
    if kind == "start":
        found.append(_started(row[1], client))
        return
    current = found[-1]
    c = _counter(row[1])
    if kind == "terms":
        of = {_client(k, n): _number(value) for k, value in row[4]}
        current.terms.append((c, Terms(Weights(_number(row[3]), of), _number(row[2]))))
    elif kind in ("fetched", "exchanged"):
        inboxes = current.fetched if kind == "fetched" else current.exchanged
        used = {_client(k, n): _counter(which) for k, which in row[3]}
        inboxes.setdefault((c, _counter(row[2])), {}).update(used)
    elif kind == "ages":
        current.ages[c, _counter(row[2])] = {_client(k, n): _number(age) for k, age in row[3]}
    elif kind == "end":
        current.end = c
    else:
        raise ValueError(f"unknown kind of line {kind!r}")


def _started(about: dict[str, Any], client: int) -> Incarnation:
    if about["format"] != FORMAT:
        raise UserError(f"the record of client {client} was written by another version of swiftfl")
    number, session, c = (_counter(about[name]) for name in ("incarnation", "session", "c"))
    if about["from"] not in ("initial", "save", "model"):
        raise ValueError(f"a client cannot start from {about['from']!r}")
    source = tuple(_counter(value) for value in about["source"])
    return Incarnation(client, number, session, c, about["from"], source)


def _counter(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is not a counter")
    return value


def _client(value: object, n: int) -> int:
    k = _counter(value)
    if k >= n:
        raise ValueError(f"there is no client {k}")
    return k


def _number(value: object) -> float:
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a number")
    return float(value)


# --- how far each incarnation went -----------------------------------------------------------------


def needed(incarnations: Sequence[Incarnation]) -> Counter[ModelName]:
    """How often each version of a client's model is used by others."""
    count: Counter[ModelName] = Counter()
    for incarnation in incarnations:
        for used in incarnation.fetched.values():
            count.update(used.items())
        if incarnation.how == "model":
            count[incarnation.source[0], incarnation.source[1]] += 1
    return count


def set_targets(incarnations: Sequence[Incarnation]) -> None:
    """How far each went: to its recorded end; of one that was killed, as far as anybody can tell."""
    by_name = {(each.client, each.number): each for each in incarnations}
    for each in incarnations:
        each.target = each.recorded
    for client, name in needed(incarnations):
        number, c = split(name)
        _reach(by_name, client, number, c)
    for each in incarnations:
        if each.how == "save":
            _reach(by_name, each.client, each.source[0], each.source[1])


def _reach(by_name: dict[tuple[int, int], Incarnation], client: int, number: int, c: int) -> None:
    if c == 0:
        return
    found = by_name.get((client, number))
    if found is None or c < found.c or (found.end is not None and c > found.end):
        raise UserError(f"the record of client {client} does not reach step {c}: it cannot be replayed")
    found.target = max(found.target, c)
