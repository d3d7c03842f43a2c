"""Models on their way and in mailboxes, in virtual time, without an event per message.

A model that client j publishes at time t is at neighbour i from t + transit on. Nobody looks before
the neighbour fetches, so nothing needs to happen at the arrival: each publisher keeps its recent
versions with the time at which they were sent, and a fetch takes the newest that has arrived.
Versions that no fetch can ever return again are dropped at the next publication, so memory is one
model per client plus what is still on its way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from swiftfl.costs import Costs
from swiftfl.engines.saved import Pool, Saved, Tree, pack_number
from swiftfl.vector import Vector

_MANY = 4


class Version(NamedTuple):
    """A published model: when it was sent, its number, and the model."""

    sent: float
    number: int
    x: Vector


class Links:
    """Edges that are down, and when others came up: what was sent before does not pass."""

    __slots__ = ("down", "up_since")

    def __init__(self) -> None:
        self.down: set[tuple[int, int]] = set()
        self.up_since: dict[tuple[int, int], float] = {}

    def cut(self, i: int, j: int) -> None:
        self.down.add((min(i, j), max(i, j)))

    def join(self, i: int, j: int, now: float) -> None:
        self.down.discard((min(i, j), max(i, j)))
        self.up_since[i, j] = self.up_since[j, i] = now

    def passes(self, i: int, k: int) -> bool:
        """Whether a model can pass between two clients that were neighbours."""
        return (min(i, k), max(i, k)) not in self.down

    def state(self) -> Tree:
        return {
            "down": sorted(self.down),
            "up_since": [[list(edge), time] for edge, time in self.up_since.items()],
        }

    def restore(self, saved: Saved, n: int) -> None:
        self.down = {(min(e), max(e)) for e in (edge.edge(n) for edge in saved["down"].items())}
        self.up_since = {}
        for item in saved["up_since"].items():
            edge, time = item.items(2)
            self.up_since[edge.edge(n)] = time.number(0.0)


class Mailboxes:
    """The recently published models of each client; every mailbox initially holds x0."""

    __slots__ = ("_costs", "_links", "_size", "_transit", "versions")

    def __init__(self, n: int, x0: Vector, costs: Costs, links: Links, size: int) -> None:
        first = Version(-math.inf, 0, x0)
        self.versions: list[list[Version]] = [[first] for _ in range(n)]
        self._links = links
        self._costs = costs
        self._size = size  # of a message, in bytes
        self._transit = costs.transit(-1, -1, self._size) if costs.same_everywhere else None

    def publish(self, sender: int, version: Version, now: float, to: Sequence[int]) -> None:
        """Put a version on its way; what everybody can see a newer one of is dropped."""
        versions = self.versions[sender]
        if self._transit is not None:
            sent_by = now - self._transit
            for position in range(len(versions) - 1, 0, -1):
                if versions[position].sent <= sent_by:
                    del versions[:position]
                    break
        elif len(versions) >= _MANY:
            # With nobody to send to, only the newest is kept, for whoever still counts the sender in.
            del versions[: min((self._newest(sender, k, now) for k in to), default=len(versions) - 1)]
        versions.append(version)

    def fetch(self, receiver: int, senders: Sequence[int], now: float) -> dict[int, Vector]:
        """The newest model of each sender that has reached the receiver."""
        inbox = {}
        if self._transit is not None and not self._links.up_since:
            sent_by = now - self._transit
            for sender in senders:
                for version in reversed(self.versions[sender]):
                    if version[0] <= sent_by:
                        inbox[sender] = version[2]
                        break
        else:
            for sender in senders:
                position = self._newest(sender, receiver, now)
                if self._arrived(sender, receiver, position, now):
                    inbox[sender] = self.versions[sender][position].x
        if self._links.down:
            return {k: x for k, x in inbox.items() if self._links.passes(receiver, k)}
        return inbox

    def _newest(self, sender: int, receiver: int, now: float) -> int:
        for position in range(len(self.versions[sender]) - 1, 0, -1):
            if self._arrived(sender, receiver, position, now):
                return position
        return 0

    def _arrived(self, sender: int, receiver: int, position: int, now: float) -> bool:
        versions = self.versions[sender]
        if not versions:
            return False
        version = versions[position]
        if version.sent < self._links.up_since.get((sender, receiver), -math.inf):
            return False
        if version.sent == -math.inf:
            return True
        costs = self._costs
        if costs.lost(sender, receiver, version.number):
            return False
        journey = costs.transit(sender, receiver, self._size) + costs.delay(sender, receiver, version.number)
        return version.sent <= now - journey

    def forget(self, sender: int) -> None:
        """The sender is known to be lost: nobody sees its models any more."""
        self.versions[sender] = []

    def models(self) -> Iterable[Vector]:
        """All models that are kept for others to fetch."""
        return (version.x for versions in self.versions for version in versions)

    def state(self, pool: Pool) -> list[list[list[object]]]:
        return [[[pack_number(v.sent), v.number, pool.put(v.x)] for v in kept] for kept in self.versions]

    def restore(self, saved: Saved) -> None:
        self.versions = [
            [_version(*item.items(3)) for item in kept.items()] for kept in saved.items(len(self.versions))
        ]


def _version(sent: Saved, number: Saved, x: Saved) -> Version:
    return Version(sent.any_number(), number.integer(), x.finite())
