"""CCS as the clients run it: one state machine per client, which knows only its neighbours.

No I/O: `start` and `receive` return the messages to send. Messages may arrive in any order and
twice; those of another epoch are ignored, so that a renewal after a change of the topology can
overlap an old run. The formulas, their names and their guards are those of `ccs.py`, bit for bit.
Waits follow strictly decreasing degree, so there is no deadlock; 4 messages pass along an edge,
6 along a tie.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from swiftfl.graph.ccs import EXHAUSTED, TIED
from swiftfl.vector import Weights


@dataclass(frozen=True, slots=True)
class Hello:
    """Sent to every neighbour: my degree and my influence."""

    epoch: int
    degree: int
    p: float


@dataclass(frozen=True, slots=True)
class Propose:
    """Sent to smaller neighbours: the coefficient a of our edge."""

    epoch: int
    a: float


@dataclass(frozen=True, slots=True)
class Tie:
    """Sent to equal neighbours: what I was assigned (R), and the influence still open with me (sigma)."""

    epoch: int
    R: float
    sigma: float


@dataclass(frozen=True, slots=True)
class Accept:
    """Sent to larger and equal neighbours: the part c <= 1 of the coefficient that I accept."""

    epoch: int
    c: float


Message: TypeAlias = Hello | Propose | Tie | Accept
KINDS: tuple[type[Message], ...] = (Hello, Propose, Tie, Accept)
BYTES = 32
"""What a message takes: its kind, its epoch and two numbers, of 64 bits each."""
Outgoing: TypeAlias = list[tuple[int, Message]]


class Selection:
    """One client's run of CCS. `weights` is None until it has finished.

    >>> a = Selection(epoch=0, n=2, uniform=True, index=0, p=0.5, neighbours=[1])
    >>> b = Selection(epoch=0, n=2, uniform=True, index=1, p=0.5, neighbours=[0])
    >>> a.start()
    [(1, Hello(epoch=0, degree=1, p=0.5))]
    >>> a.receive(1, b.start()[0][1])
    [(1, Tie(epoch=0, R=0.0, sigma=1.0))]
    """

    def __init__(
        self, epoch: int, n: int, uniform: bool, index: int, p: float, neighbours: Iterable[int]
    ) -> None:
        self.epoch, self.n, self.index, self.p = epoch, n, index, float(p)
        self.uniform = uniform
        self.neighbours = tuple(sorted(neighbours))
        self._known = frozenset(self.neighbours)
        self.coefficients: dict[int, float] = {}
        self.weights: Weights | None = Weights(1.0, {}) if not self.neighbours else None
        self._share = 1.0 - (0.0 if uniform else 1.0 / n)
        self._hello: dict[int, Hello] = {}
        self._propose: dict[int, Propose] = {}
        self._tie: dict[int, Tie] = {}
        self._accept: dict[int, Accept] = {}
        self._stage = 0
        self._larger: list[int] = []
        self._equal: list[int] = []
        self._smaller: list[int] = []
        self._R = self._sigma = self._r = 0.0
        self._scale_larger = self._scale_equal = 1.0

    @property
    def done(self) -> bool:
        """Whether the weights are known."""
        return self.weights is not None

    def start(self) -> Outgoing:
        """HELLO to every neighbour."""
        hello = Hello(self.epoch, len(self.neighbours), self.p)
        return [(j, hello) for j in self.neighbours]

    def receive(self, sender: int, message: Message) -> Outgoing:
        """Take one message in; returns what it made possible to send."""
        if message.epoch != self.epoch:
            return []
        if sender not in self._known:
            raise ValueError(f"client {self.index} got {message} from {sender}, which is not a neighbour")
        if isinstance(message, Hello):
            self._hello[sender] = message
        elif isinstance(message, Propose):
            self._propose[sender] = message
        elif isinstance(message, Tie):
            self._tie[sender] = message
        else:
            self._accept[sender] = message
        return self._advance()

    def _advance(self) -> Outgoing:
        """Every stage whose messages are all here, one after another."""
        out: Outgoing = []
        if self._stage == 0 and len(self._hello) == len(self.neighbours):
            self._sort_neighbours()
            self._stage = 1
        if self._stage == 1 and len(self._propose) == len(self._larger):
            out += self._receive_proposals()
        if self._stage == 2 and len(self._tie) == len(self._equal):
            out += self._settle_ties()
        if self._stage == 3 and len(self._accept) == len(self._equal) + len(self._smaller):
            self._finish()
        return out

    def _sort_neighbours(self) -> None:
        own = len(self.neighbours)
        for j in self.neighbours:
            degree = self._hello[j].degree
            side = self._larger if degree > own else self._equal if degree == own else self._smaller
            side.append(j)

    def _influence(self, side: Sequence[int]) -> float:
        return _total(self._hello[j].p for j in side)

    def _receive_proposals(self) -> Outgoing:
        """Step 2, and TIE to equal neighbours; or the end, if all neighbours are larger."""
        for j in self._larger:
            self.coefficients[j] = self._propose[j].a
        R = self._assigned(self._larger)
        if not self._equal and not self._smaller:
            most = 1.0 - 1.0 / self.n
            if most < R:
                self._scale_larger = most / R
            self._stage = 3
            return self._accept_larger()
        self._sigma = self.p + self._influence(self._equal) + self._influence(self._smaller)
        if self._share - R <= EXHAUSTED:
            P = self._influence(self._larger)
            target = self._share * P / (P + self._sigma)
            self._scale_larger = target / R
            R = target
        self._R = R
        self._stage = 2
        tie = Tie(self.epoch, R, self._sigma)
        return [(j, tie) for j in self._equal]

    def _settle_ties(self) -> Outgoing:
        """Steps 3 and 4: agree with equals, guard the own weight, propose to smaller neighbours."""
        for j in self._equal:
            tie = self._tie[j]
            left = self._share - max(self._R, tie.R)
            self.coefficients[j] = left / max(self._sigma, tie.sigma)
        A = self._R + self._assigned(self._equal)
        if self.uniform:
            A = self._guard_own(A)
        self._r = (self._share - A) / (self.p + self._influence(self._smaller))
        propose, accept = Propose(self.epoch, self._r), Accept(self.epoch, self._scale_equal)
        self._stage = 3
        out: Outgoing = [(j, propose) for j in self._smaller]
        return out + self._accept_larger() + [(j, accept) for j in self._equal]

    def _guard_own(self, A: float) -> float:
        S, held = len(self._smaller), len(self._larger) + len(self._equal)
        if (1.0 - TIED) / self.n > (1.0 - A) / (S + 1):
            target = held / (held + S + 1)
            self._scale_equal = target / A
            self._scale_larger *= self._scale_equal
            A = target
        return A

    def _accept_larger(self) -> Outgoing:
        accept = Accept(self.epoch, self._scale_larger)
        return [(j, accept) for j in self._larger]

    def _finish(self) -> None:
        """Step 5: scale every coefficient by what both ends accepted; the surplus stays with self."""
        for j in self._larger:
            self.coefficients[j] *= self._scale_larger
        for j in self._equal:
            self.coefficients[j] *= min(self._scale_equal, self._accept[j].c)
        for j in self._smaller:
            self.coefficients[j] = self._r * self._accept[j].c
        of = {j: self.coefficients[j] * self._hello[j].p for j in self.neighbours}
        self.weights = Weights(1.0 - _total(of.values()), of)
        self._stage = 4

    def _assigned(self, side: Sequence[int]) -> float:
        return _total(self.coefficients[j] * self._hello[j].p for j in side)


def _total(terms: Iterable[float]) -> float:
    """A plain sum in the order given (`sum` compensates from Python 3.12 on)."""
    total = 0.0
    for term in terms:
        total += term
    return total


def pack(message: Message) -> tuple[int, int, float, float]:
    """Its kind (a place in KINDS), its epoch and two numbers: what a transport carries.

    >>> unpack(*pack(Propose(epoch=3, a=0.5)))
    Propose(epoch=3, a=0.5)
    """
    epoch, *numbers = (getattr(message, name) for name in message.__slots__)
    first, second = (*map(float, numbers), 0.0)[:2]
    return KINDS.index(type(message)), epoch, first, second


def unpack(kind: int, epoch: int, first: float, second: float) -> Message:
    if kind == 0:
        return Hello(epoch, int(first), second)
    if kind == 2:
        return Tie(epoch, first, second)
    return Propose(epoch, first) if kind == 1 else Accept(epoch, first)
