"""What happens to a network: one change, rates of random ones, and how fast they are noticed and repaired.

`Membership` (`engines/membership.py`) is what becomes of it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

from swiftfl.engines.saved import Saved
from swiftfl.errors import UserError

Kind = Literal["crash", "return", "leave", "join", "sleep", "edge_down", "edge_up", "notice", "renew"]
OF_A_CLIENT = ("crash", "return", "leave", "join", "sleep")
OF_AN_EDGE = ("edge_down", "edge_up")
CHANGES = (*OF_A_CLIENT, *OF_AN_EDGE, "notice", "renew")


@dataclass(frozen=True)
class Change:
    """One thing that happens to the network: at a time, or after `iteration` client steps in all."""

    time: float | None
    kind: Kind
    client: int = -1
    edge: tuple[int, int] | None = None
    seconds: float = 0.0
    draw: int = 0  # of a random change: which draw of its kind it is
    iteration: int | None = None

    @property
    def concerns(self) -> str:
        return f"client {self.client}" if self.edge is None else f"edge {sorted(self.edge)}"

    def check(self, n: int) -> None:
        if (self.time is None) == (self.iteration is None):
            raise UserError(
                f"{self.kind}: give it either a time (in seconds) or an iteration (in client steps)"
            )
        if self.time is not None and not (math.isfinite(self.time) and self.time >= 0):
            raise UserError(f"{self.kind}: the time must be finite and not negative, not {self.time}")
        if self.iteration is not None and self.iteration < 1:
            raise UserError(f"{self.kind}: the iteration must be at least 1, not {self.iteration}")
        if self.kind in OF_A_CLIENT and self.client == -1:
            raise UserError(f"{self.kind} needs a client")
        if self.kind in OF_A_CLIENT and not 0 <= self.client < n:
            raise UserError(f"{self.kind} of client {self.client}: clients are 0 to {n - 1}")
        if self.kind in OF_AN_EDGE:
            i, j = self.edge or (-1, -1)
            if not (0 <= i < n and 0 <= j < n and i != j):
                raise UserError(f"{self.kind}: {self.edge} is not an edge among {n} clients")
        if self.kind == "sleep" and not (math.isfinite(self.seconds) and self.seconds > 0):
            raise UserError(f"sleep of client {self.client} needs positive seconds, not {self.seconds}")


@dataclass(frozen=True)
class Rates:
    """Events per second: of each client (crash, return of one that is away, sleep) and of each edge."""

    crash: float = 0.0
    come_back: float = 0.0
    sleep: float = 0.0
    sleep_seconds: float = 1.0
    edge_down: float = 0.0
    edge_up: float = 0.0

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise UserError(f"rate {name} must be finite and not negative, not {getattr(self, name)}")


@dataclass(frozen=True)
class Dynamics:
    """How the network changes, and how fast it is noticed and repaired."""

    changes: Sequence[Change] = ()
    rates: Rates = field(default_factory=Rates)
    notice: float = 0.1
    renewal: float = 0.05
    measured: bool = False
    keep_objective: bool = False
    measure_every: int = 20

    @property
    def changing(self) -> bool:
        """Whether anything changes by itself: clients, links, or the coefficients by measured rates."""
        return bool(self.changes) or self.rates != Rates() or self.measured

    def check(self, n: int) -> None:
        for change in self.changes:
            change.check(n)
        self._check_order()
        if self.measure_every < 1:
            raise UserError(
                f"influence is measured every 1 step per client or more, not {self.measure_every}"
            )
        for name in ("notice", "renewal"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise UserError(f"{name} must be finite and not negative, not {getattr(self, name)}")

    def check_without_clock(self) -> None:
        """Refuse what takes time, where nothing does."""
        why = "engine sampled has no clock"
        for change in self.changes:
            if change.time is not None:
                raise UserError(f"{change.kind} at time {change.time}: {why}; give it an iteration instead")
            if change.kind in ("crash", "sleep"):
                raise UserError(f"{change.kind} of client {change.client}: {why}; it has leave and return")
        plain = Dynamics(self.changes, keep_objective=self.keep_objective)
        for name in ("rates", "notice", "renewal", "measured", "measure_every"):
            if getattr(self, name) != getattr(plain, name):
                raise UserError(f"{name} of a network that changes: {why}")

    def _check_order(self) -> None:
        """That it is known what happens first to each client and each edge."""
        by_iteration: dict[str, bool] = {}
        for change in self.changes:
            counted, what = change.iteration is not None, change.concerns
            if by_iteration.setdefault(what, counted) != counted:
                raise UserError(
                    f"{what} has changes by time and by iteration: "
                    "what comes first is not known; give all of them one or the other"
                )

    def check_plan(self, edges: Collection[tuple[int, int]]) -> None:
        """Refuse planned changes that would change nothing, such as the loss of an edge that is not there.

        Where clients or edges also change at random, that cannot be known before.
        """
        rates, up = self.rates, set(edges)
        away: dict[int, bool] = {}
        for change in in_order(self.changes):
            if change.edge is not None:
                edge = (min(change.edge), max(change.edge))
                if (change.kind == "edge_up") == (edge in up) and not (rates.edge_down or rates.edge_up):
                    state = "is up already" if edge in up else "is not there"
                    raise UserError(f"{change.kind} of {change.concerns}: it {state} by then")
                (up.add if change.kind == "edge_up" else up.discard)(edge)
            elif change.kind in OF_A_CLIENT and not (rates.crash or rates.come_back):
                comes = change.kind in ("join", "return")
                if away.setdefault(change.client, change.kind == "join") != comes:
                    state = "is not there" if away[change.client] else "is there already"
                    raise UserError(f"{change.kind} of {change.concerns}: it {state} by then")
                away[change.client] = change.kind in ("crash", "leave")

    def check_presence(self, n: int, timed: bool) -> None:
        """Refuse a plan that leaves nobody: at its end, or for a while in which nothing would happen.

        While nobody is there only a change by time can come, and only where time is virtual (`timed`).
        """
        changes = [change for change in in_order(self.changes) if change.kind in OF_A_CLIENT]
        if self.rates.come_back or not changes:
            return
        one_order = len({change.iteration is None for change in changes}) == 1
        there = set(range(n)) - absent_at_start(changes)
        moments = [("at the start", "give one of them no join", there)]
        for change in changes:
            if change.kind in ("crash", "leave"):
                there = there - {change.client}
            elif change.kind != "sleep":
                there = there | {change.client}
            moments.append((f"after the {change.kind} of {change.concerns}", "let one of them stay", there))
        waits = timed and one_order and changes[0].iteration is None
        checked = moments[-1:] if waits else moments if one_order else [moments[0], moments[-1]]
        for when, remedy, left in checked:
            if not left:
                raise UserError(f"nobody is there {when}: {remedy}")


def absent_at_start(changes: Iterable[Change]) -> set[int]:
    """The clients whose first change is a join."""
    first: dict[int, Kind] = {}
    for change in in_order(changes):
        if change.kind in OF_A_CLIENT:
            first.setdefault(change.client, change.kind)
    return {i for i, kind in first.items() if kind == "join"}


def in_order(changes: Iterable[Change]) -> list[Change]:
    """As they happen to each client and each edge, whose changes are all by time or all by iteration."""
    return sorted(changes, key=lambda change: change.iteration or change.time or 0.0)


def read_change(saved: Saved, n: int) -> Change:
    """A change that a checkpoint has planned."""
    kind, edge = saved["kind"].text(), saved["edge"]
    if kind not in CHANGES:
        saved["kind"].fail(f"is {kind!r}, which is no change of a network")
    lowest = 0 if kind in OF_A_CLIENT or kind == "notice" else -1
    time, iteration = saved["time"], saved["iteration"]
    change = Change(
        None if time.missing else time.number(0.0),
        cast(Kind, kind),
        saved["client"].integer(lowest, n - 1),
        None if edge.missing else edge.edge(n),
        saved["seconds"].number(0.0),
        saved["draw"].integer(),
        None if iteration.missing else iteration.integer(1),
    )
    change.check(n)
    return change
