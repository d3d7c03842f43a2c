"""What a live client and its engine say to each other."""

from __future__ import annotations

from typing import Protocol

from swiftfl.engines.live.status import Order, Tally
from swiftfl.engines.terms import Terms
from swiftfl.vector import Vector


class Control(Protocol):
    """A client's channel to its engine; no call ever blocks but `hold`."""

    def report(self, c: int, tally: Tally) -> None:
        """Step c is about to start."""

    def new_terms(self) -> list[Terms]:
        """Terms that have arrived since the last call, oldest first."""

    def wants_model(self, published: bool) -> bool:
        """Whether whoever evaluates is to be shown this client's model; `published`: it can see those."""

    def hand_over(self, x: Vector, version: int) -> None:
        """The model before a step, for somebody who joins and starts from it, if there is one."""

    def order(self, c: int) -> Order:
        """What to do before step c."""

    def hold(self, c: int) -> Order:
        """Asked to hold before step c: wait until that is final (stop, finish) or withdrawn (any other)."""

    def set_waits(self, waits: bool) -> None:
        """Whether this client waits for others now, so that nobody takes it for blocked."""

    def warn(self, text: str) -> None:
        """A warning to the user."""
