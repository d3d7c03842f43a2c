"""Reading what live clients wrote down (`engines.live.journal`), and making sure that it makes sense."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swiftfl.engines.live.journal import journal_file, split
from swiftfl.engines.terms import Terms
from swiftfl.errors import UserError
from swiftfl.vector import Weights

Version = tuple[int, int]
"""A client, and a version of its model."""


@dataclass
class Life:
    """One life of a client, as it was recorded; it takes the steps from `c` up to `target`."""

    client: int
    life: int
    session: int
    c: int
    how: str
    source: tuple[int, ...]
    terms: list[tuple[int, Terms]] = field(default_factory=list)
    saw: dict[int, dict[int, int]] = field(default_factory=dict)
    met: dict[int, list[int]] = field(default_factory=dict)
    end: int | None = None
    target: int = 0

    def terms_at(self, c: int) -> Terms:
        """What held in step c."""
        held = [terms for since, terms in self.terms if since <= c]
        if not held:
            raise UserError(f"the record of client {self.client} has no weights for step {c}")
        return held[-1]


def read_lives(folder: Path, client: int, n: int) -> list[Life]:
    """All lives of a client, in their order."""
    file = journal_file(folder, client)
    if not file.is_file():
        raise UserError(f"{folder} has no record of client {client}: the run cannot be replayed")
    lives: list[Life] = []
    lines = [line for line in file.read_text(errors="replace").split("\n") if line]
    for number, line in enumerate(lines, start=1):
        try:
            _take(lives, json.loads(line), client, n)
        except (ValueError, TypeError, IndexError, KeyError) as error:
            if isinstance(error, UserError):
                raise
            if number == len(lines):
                break  # torn when its client was killed
            raise UserError(f"cannot read {file}, line {number}: {error}") from None
    return lives


def _take(lives: list[Life], row: list[Any], client: int, n: int) -> None:
    kind = row[0]
    if kind == "start":
        life, session, c = (_counter(value) for value in row[1:4])
        if row[4] not in ("initial", "saved", "model"):
            raise ValueError(f"a life cannot start from {row[4]!r}")
        lives.append(Life(client, life, session, c, row[4], tuple(_counter(v) for v in row[5:])))
        return
    current = lives[-1]
    c = _counter(row[1])
    if kind == "terms":
        of = {_client(k, n): _number(value) for k, value in row[4]}
        current.terms.append((c, Terms(Weights(_number(row[3]), of), _number(row[2]))))
    elif kind == "saw":
        current.saw[c] = {_client(k, n): _counter(version) for k, version in row[2]}
    elif kind == "met":
        current.met[c] = [_client(k, n) for k, _ in row[2]]
    elif kind == "end":
        current.end = c
    else:
        raise ValueError(f"unknown kind of line {kind!r}")


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


def needed(lives: Sequence[Life]) -> Counter[Version]:
    """How often each version of a client's model is used by others."""
    count: Counter[Version] = Counter()
    for life in lives:
        for used in life.saw.values():
            count.update(used.items())
        if life.how == "model":
            count[life.source[0], life.source[1]] += 1
    return count


def set_targets(lives: Sequence[Life]) -> None:
    """How far each life went: to its recorded end; of one that was killed, as far as anybody can tell."""
    by_name = {(life.client, life.life): life for life in lives}
    for life in lives:
        seen = [c + 1 for c in (*life.saw, *life.met)]
        life.target = life.end if life.end is not None else max([life.c, *seen])
    for client, version in needed(lives):
        number, c = split(version)
        _reach(by_name, client, number, c)
    for life in lives:
        if life.how == "saved":
            _reach(by_name, life.client, life.source[0], life.source[1])


def _reach(by_name: dict[tuple[int, int], Life], client: int, number: int, c: int) -> None:
    life = by_name.get((client, number))
    if c == 0:
        return
    if life is None or c < life.c or (life.end is not None and c > life.end):
        raise UserError(f"the record of client {client} does not reach step {c}: it cannot be replayed")
    life.target = max(life.target, c)
