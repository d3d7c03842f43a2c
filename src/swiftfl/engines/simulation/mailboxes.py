"""Models on their way and in mailboxes, in virtual time, without an event per message.

A model that client j publishes at time t is at neighbour i from t + transit on. Nobody looks before
the neighbour fetches, so nothing needs to happen at the arrival: each publisher keeps its recent
versions with the time at which they were sent, and a fetch takes the newest that has arrived.
Versions that no fetch can ever return again are dropped at the next publication, so memory is one
model per client plus what is still on its way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from swiftfl.costs import Costs
from swiftfl.vector import Vector

_MANY = 4


class Letter(NamedTuple):
    sent: float
    version: int
    x: Vector


class Mailboxes:
    """The recently published models of each client; they start full of x0, there since ever."""

    def __init__(self, n: int, x0: Vector, costs: Costs) -> None:
        first = Letter(-math.inf, 0, x0)
        self.letters: list[list[Letter]] = [[first] for _ in range(n)]
        self.since: dict[tuple[int, int], float] = {}
        self.costs = costs
        self.size = costs.message(x0.nbytes)
        self._transit = costs.transit(-1, -1, self.size) if costs.same_everywhere else None

    def publish(self, sender: int, letter: Letter, now: float, to: Sequence[int]) -> None:
        """Put a letter on its way; what everybody can see a newer one of is dropped."""
        letters = self.letters[sender]
        if self._transit is not None:
            sent_by = now - self._transit
            for position in range(len(letters) - 1, 0, -1):
                if letters[position].sent <= sent_by:
                    del letters[:position]
                    break
        elif len(letters) >= _MANY:
            # With nobody to send to, only the newest is kept, for whoever still counts the sender in.
            del letters[: min((self._newest(sender, k, now) for k in to), default=len(letters) - 1)]
        letters.append(letter)

    def fetch(self, receiver: int, senders: Sequence[int], now: float) -> dict[int, Vector]:
        """The newest model of each sender that has reached the receiver."""
        inbox = {}
        if self._transit is not None and not self.since:
            sent_by = now - self._transit
            for sender in senders:
                for letter in reversed(self.letters[sender]):
                    if letter[0] <= sent_by:
                        inbox[sender] = letter[2]
                        break
            return inbox
        for sender in senders:
            position = self._newest(sender, receiver, now)
            if self._arrived(sender, receiver, position, now):
                inbox[sender] = self.letters[sender][position].x
        return inbox

    def _newest(self, sender: int, receiver: int, now: float) -> int:
        for position in range(len(self.letters[sender]) - 1, 0, -1):
            if self._arrived(sender, receiver, position, now):
                return position
        return 0

    def _arrived(self, sender: int, receiver: int, position: int, now: float) -> bool:
        letters = self.letters[sender]
        if not letters:
            return False
        letter = letters[position]
        if letter.sent < self.since.get((sender, receiver), -math.inf):
            return False
        if letter.sent == -math.inf:
            return True
        costs = self.costs
        if costs.lost(sender, receiver, letter.version):
            return False
        journey = costs.transit(sender, receiver, self.size) + costs.delay(sender, receiver, letter.version)
        return letter.sent <= now - journey

    def forget(self, sender: int) -> None:
        """The sender is known to be lost: nobody sees its models any more."""
        self.letters[sender] = []

    def held(self) -> int:
        """How many models are kept for others to fetch."""
        return sum(map(len, self.letters))
