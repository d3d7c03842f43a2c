"""Models on their way and in mailboxes, in virtual time, without an event per message.

A model that client j publishes at time t is at neighbour i from t + transit on. Nobody looks before
the neighbour fetches, so nothing needs to happen at the arrival: each publisher keeps its recent
versions with the time from which they can be seen, and a fetch takes the newest visible one.
Versions that no fetch can ever return again are dropped at the next publication, so memory is one
model per client plus what is still on its way.
"""

from __future__ import annotations

from typing import NamedTuple

from swiftfl.vector import Vector


class Letter(NamedTuple):
    visible: float
    version: int
    x: Vector


class Mailboxes:
    """The newest published models of each client; they start full of x0, visible since ever."""

    def __init__(self, n: int, x0: Vector) -> None:
        first = Letter(float("-inf"), 0, x0)
        self.letters: list[list[Letter]] = [[first] for _ in range(n)]

    def publish(self, sender: int, letter: Letter, now: float) -> None:
        letters = self.letters[sender]
        # Drop what is older than the newest letter that everybody can see already.
        for position in range(len(letters) - 1, 0, -1):
            if letters[position].visible <= now:
                del letters[:position]
                break
        letters.append(letter)

    def newest(self, sender: int, now: float) -> Vector:
        for letter in reversed(self.letters[sender]):
            if letter.visible <= now:
                return letter.x
        raise AssertionError(f"client {sender} has no visible model at time {now}")

    def held(self) -> int:
        """How many models are kept for others to fetch."""
        return sum(map(len, self.letters))
