"""A census: those who can reach each other learn how many they are, and nothing of who has which neighbours.

One state machine per client, without I/O, as in `messages.py`. Whoever notices a change begins an *epoch*:
an exploration that spreads from neighbour to neighbour. Each client answers the one from which it heard first
(its parent), once it knows the numbers of all the others that did so with it (its children). The client that
began adds up the last numbers, and the totals go down the same tree. If several begin at once, or a change
comes in between, the largest epoch wins: whoever hears of it drops the others. So nobody is in the middle.
An epoch is a counter and the number of the client that began it, so that no two are the same.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from swiftfl.graph.messages import KINDS as CCS_KINDS

FIRST_KIND = len(CCS_KINDS)
"""Kinds of small messages below are those of CCS."""
_CLIENTS = 1 << 20
RENEWAL, CONSENSUS = 0, 1
"""What a census is for."""


@dataclass(frozen=True, slots=True)
class Explore:
    """Sent to every neighbour but the parent."""

    epoch: int
    purpose: float = RENEWAL
    nothing: float = 0.0


@dataclass(frozen=True, slots=True)
class Count:
    """Sent to the parent: how many there are below, and their influence if all have the same (else NaN)."""

    epoch: int
    count: float
    p: float


@dataclass(frozen=True, slots=True)
class Sums:
    """Sent to the parent: the sums of their influence and of what they were given."""

    epoch: int
    p: float
    given: float


@dataclass(frozen=True, slots=True)
class Agreed:
    """Sent to the children: how many there are in all, and whether all have the same influence."""

    epoch: int
    n: float
    uniform: float


@dataclass(frozen=True, slots=True)
class Totals:
    """Sent to the children: the sums over all."""

    epoch: int
    p: float
    given: float


CensusMessage: TypeAlias = Explore | Count | Sums | Agreed | Totals
KINDS: tuple[type[CensusMessage], ...] = (Explore, Count, Sums, Agreed, Totals)
CensusOutgoing: TypeAlias = list[tuple[int, CensusMessage]]


@dataclass(frozen=True, slots=True)
class Share:
    """What a client brings: its influence in CCS, and the one it was given."""

    p: float
    given: float


@dataclass(frozen=True, slots=True)
class CensusResult:
    """What a client knows at the end; `parent` is None for the one that began."""

    epoch: int
    purpose: int
    n: int
    uniform: bool
    share: Share
    total: Share
    neighbours: tuple[int, ...]
    parent: int | None
    children: tuple[int, ...]

    @property
    def scale(self) -> float:
        """Given over true influence: by what steps are scaled so that data count as they were given."""
        own, total = self.share, self.total
        return (own.given / total.given) / (own.p / total.p)


class Census:
    """One client's part, epoch after epoch. `index` is a number that no other client has.

    >>> a, b = Census(0), Census(1)
    >>> a.begin([1], Share(0.5, 0.5))
    [(1, Explore(epoch=1048576, purpose=0, nothing=0.0))]
    >>> count, sums = b.receive(0, Explore(1048576), [0], Share(0.5, 0.5))
    >>> count
    (0, Count(epoch=1048576, count=1.0, p=0.5))
    >>> _ = a.receive(1, count[1], [1], Share(0.5, 0.5)), a.receive(1, sums[1], [1], Share(0.5, 0.5))
    >>> a.result.n, a.result.uniform
    (2, True)
    """

    def __init__(self, index: int) -> None:
        if not 0 <= index < _CLIENTS:
            raise ValueError(f"a client's number is less than {_CLIENTS}, not {index}")
        self._index = index
        self.epoch, self.purpose = 0, RENEWAL
        self.neighbours: tuple[int, ...] = ()
        self.result: CensusResult | None = None
        """Of this epoch, once it is known."""
        self._parent: int | None = None
        self._share = Share(1.0, 1.0)
        self._heard: set[int] = set()
        self._counts: dict[int, Count] = {}
        self._sums: dict[int, Sums] = {}
        self._agreed: Agreed | None = None
        self._totals: Totals | None = None
        self._told = False  # the parent

    def begin(self, neighbours: Collection[int], share: Share, purpose: int = RENEWAL) -> CensusOutgoing:
        """Begin an epoch, above all that this client knows of."""
        epoch = (self.epoch // _CLIENTS + 1) * _CLIENTS + self._index
        return self._join(epoch, purpose, None, neighbours, share)

    def receive(
        self, sender: int, message: CensusMessage, neighbours: Collection[int], share: Share
    ) -> CensusOutgoing:
        """Take a message in, once or again; the neighbours and the share are those of this moment."""
        if isinstance(message, Explore) and message.epoch > self.epoch:
            return self._join(message.epoch, int(message.purpose), sender, neighbours, share)
        if message.epoch != self.epoch or sender not in self.neighbours:
            return []
        if isinstance(message, Explore):
            self._heard.add(sender)
        elif isinstance(message, Count):
            self._counts[sender] = message
        elif isinstance(message, Sums):
            self._sums[sender] = message
        elif sender != self._parent:
            return []
        elif isinstance(message, Agreed):
            self._agreed = message
        else:
            self._totals = message
        return self._advance()

    def _join(
        self, epoch: int, purpose: int, parent: int | None, neighbours: Collection[int], share: Share
    ) -> CensusOutgoing:
        self.epoch, self.purpose, self._parent, self._share = epoch, purpose, parent, share
        self.neighbours, self.result = tuple(sorted(neighbours)), None
        self._heard = set() if parent is None else {parent}
        self._counts, self._sums = {}, {}
        self._agreed = self._totals = None
        self._told = False
        explore = Explore(epoch, purpose)
        out: CensusOutgoing = [(k, explore) for k in self.neighbours if k != parent]
        return out + self._advance()

    @property
    def _children(self) -> tuple[int, ...]:
        return tuple(sorted(self._counts.keys() & self._sums.keys()))

    def _advance(self) -> CensusOutgoing:
        if self.result is not None or not self._heard.union(self._children).issuperset(self.neighbours):
            return []
        if self._parent is None:
            count, sums = self._added_up()
            self._agreed = Agreed(self.epoch, count.count, float(not math.isnan(count.p)))
            self._totals = Totals(self.epoch, sums.p, sums.given)
        elif not self._told:
            self._told = True
            return [(self._parent, message) for message in self._added_up()]
        return self._finish()

    def _added_up(self) -> tuple[Count, Sums]:
        children = self._children
        same = all(self._counts[k].p == self._share.p for k in children)
        count = Count(
            self.epoch,
            1.0 + _total(self._counts[k].count for k in children),
            self._share.p if same else math.nan,
        )
        p = self._share.p + _total(self._sums[k].p for k in children)
        given = self._share.given + _total(self._sums[k].given for k in children)
        return count, Sums(self.epoch, p, given)

    def _finish(self) -> CensusOutgoing:
        if self._agreed is None or self._totals is None:
            return []
        self.result = CensusResult(
            self.epoch,
            self.purpose,
            int(self._agreed.n),
            bool(self._agreed.uniform),
            self._share,
            Share(self._totals.p, self._totals.given),
            self.neighbours,
            self._parent,
            self._children,
        )
        return [(k, message) for k in self._children for message in (self._agreed, self._totals)]


def sound(message: CensusMessage) -> bool:
    """Whether its numbers can be those of a census: what neighbours send is not to be trusted."""
    if isinstance(message, Explore):
        return message.purpose in (RENEWAL, CONSENSUS)
    if isinstance(message, Count):
        return _is_count(message.count) and (math.isnan(message.p) or 0 < message.p < math.inf)
    if isinstance(message, Agreed):
        return _is_count(message.n) and message.uniform in (0.0, 1.0)
    return 0 < message.p < math.inf and 0 < message.given < math.inf


def _is_count(number: float) -> bool:
    return 1 <= number <= _CLIENTS and float(number).is_integer()


def begun(epoch: int) -> int:
    """The counter of an epoch: about how many have been begun before."""
    return epoch // _CLIENTS


def pack(message: CensusMessage) -> tuple[int, int, float, float]:
    """Its kind among all small messages, its epoch and two numbers."""
    epoch, first, second = (getattr(message, name) for name in message.__slots__)
    return FIRST_KIND + KINDS.index(type(message)), epoch, float(first), float(second)


def unpack(kind: int, epoch: int, first: float, second: float) -> CensusMessage:
    return KINDS[kind - FIRST_KIND](epoch, first, second)


def _total(terms: Iterable[float]) -> float:
    return float(sum(terms))
