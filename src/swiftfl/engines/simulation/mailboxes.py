"""Models on their way and in mailboxes, in virtual time, without an event per message.

A model that client j publishes at time t is at neighbour i from t + transit on. Nobody looks before
the neighbour fetches, so nothing needs to happen at the arrival: each publisher keeps its recent
versions with the time at which they were sent, and a fetch takes the newest that has arrived.
Versions that no fetch can ever return again are dropped at the next publication, or earlier, where there are
many and nobody can look in time (`forget_before`): one model per client stays, and what is on
its way.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from swiftfl.costs import Costs
from swiftfl.engines.ages import FetchedModels, Pace
from swiftfl.engines.saved import Pool, Saved, Tree, pack_number
from swiftfl.small import calls
from swiftfl.vector import Vector

_MANY = 4
_FORGOTTEN: Vector = np.empty(0, np.float32)
"""In place of a model that nobody will fetch any more; when it arrived is still told."""


class Version(NamedTuple):
    """A published model: when it was sent, its number, and the model.

    `since` is the time from which its age counts: where nothing takes time, a number of iterations.
    """

    sent: float
    number: int
    x: Vector
    since: float = -math.inf


_NONE = Version(math.inf, 0, _FORGOTTEN)
"""In place of the newest version of a sender that has none."""


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
    """The recently published models of each client; every mailbox initially holds x0 (or a first message)."""

    __slots__ = (
        "_costs",
        "_links",
        "_newest_versions",
        "_paces",
        "_same_everywhere",
        "_size",
        "_steps",
        "_to",
        "newest_sent",
        "transit",
        "versions",
    )

    def __init__(self, n: int, x0: Vector, costs: Costs, links: Links, size: int) -> None:
        first = Version(-math.inf, 0, x0)
        self.versions: list[list[Version]] = [[first] for _ in range(n)]
        self._newest_versions = [first] * n  # of each sender: most fetches need no more, and find it at once
        self._paces = [Pace() for _ in range(n)]
        self._steps = array("d", [0.0]) * n  # of the paces: a fetch looks at nothing else of them
        self.newest_sent = array("d", [-math.inf]) * n
        """When each client's newest version was sent."""
        self._to: list[Sequence[int]] = [()] * n
        self._links = links
        self._costs = costs
        self._size = size  # of a message, in bytes
        self._same_everywhere = costs.same_everywhere
        self.transit = costs.transit(-1, -1, size) if costs.same_everywhere else math.nan
        """How long every version travels, where that does not depend on who sends it to whom."""

    def publish(self, sender: int, version: Version, now: float, to: Sequence[int]) -> None:
        """Put a version on its way; what everybody can see a newer one of is dropped."""
        versions = self.versions[sender]
        if self._same_everywhere:
            # They stand in the order in which they were sent, and there are hardly ever more than two.
            sent_by = now - self.transit
            while len(versions) > 1 and versions[1][0] <= sent_by:
                del versions[0]
        elif len(versions) >= _MANY:
            # With nobody to send to, only the newest is kept, for whoever still counts the sender in.
            del versions[: min((self._newest(sender, k, now) for k in to), default=len(versions) - 1)]
        versions.append(version)
        self._newest_versions[sender] = version
        self.newest_sent[sender] = version[0]
        self._to[sender] = to
        pace = self._paces[sender]
        pace.note(version[1], version[3])
        self._steps[sender] = pace.step

    def fetch(
        self, receiver: int, senders: Sequence[int], now: float, until: float | None = None
    ) -> FetchedModels:
        """The newest model of each sender that has reached the receiver, and their ages `until` now."""
        inbox, links = FetchedModels(), self._links
        inbox.ages = ages = {}
        until = now if until is None else until
        if not self._same_everywhere or links.up_since or links.down:
            for sender in senders:
                position = self._newest(sender, receiver, now)
                if self._arrived(sender, receiver, position, now) and links.passes(receiver, sender):
                    version = self.versions[sender][position]
                    inbox[sender] = version[2]
                    age = self._paces[sender].age(version[3], until)
                    if age is not None:
                        ages[sender] = age
            return inbox
        sent_by = now - self.transit  # the same, for the plain case, without a call: this is a hot path
        newest, steps = self._newest_versions, self._steps
        if calls.fetch(inbox, ages, senders, newest, self.versions, steps, sent_by, until):
            return inbox
        for sender in senders:
            found = newest[sender]
            if found[0] > sent_by:
                for found in reversed(self.versions[sender]):
                    if found[0] <= sent_by:
                        break
                else:
                    continue
            inbox[sender] = found[2]
            step = steps[sender]
            if step and found[3] != -math.inf:
                ages[sender] = (until - found[3]) / step
        return inbox

    def arrivals(self, receiver: int, senders: Sequence[int], now: float) -> list[tuple[int, float]]:
        """Of each sender, the number of the newest model at the receiver, and since when; -1: none."""
        found = []
        for sender in senders:
            position = self._newest(sender, receiver, now)
            there = self._arrived(sender, receiver, position, now) and self._links.passes(receiver, sender)
            version = self.versions[sender][position] if there else None
            if version is None:
                found.append((-1, math.nan))
            else:
                since = version.sent + self._journey(sender, receiver, version.number)
                found.append((version.number, max(0.0, since)))
        return found

    def arrivals_everywhere(self, now: float) -> list[tuple[int, float]] | None:
        """The same of every client's newest model at any other; None where that depends on the receiver."""
        if not self._same_everywhere or self._links.up_since or self._links.down:
            return None
        found = []
        for versions in self.versions:
            newest = next((v for v in reversed(versions) if v.sent <= now - self.transit), None)
            if newest is None:
                found.append((-1, math.nan))
            else:
                found.append((newest.number, max(0.0, newest.sent + self.transit)))
        return found

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
        if self._costs.lost(sender, receiver, version.number):
            return False
        return version.sent <= now - self._journey(sender, receiver, version.number)

    def _journey(self, sender: int, receiver: int, number: int) -> float:
        costs = self._costs
        return costs.transit(sender, receiver, self._size) + costs.delay(sender, receiver, number)

    def forget_before(
        self, senders: npt.NDArray[np.int64], times: npt.NDArray[np.float64], usual: Sequence[Sequence[int]]
    ) -> None:
        """Give up models of senders which are superseded at these times, before which no receiver will fetch.

        Those of `usual` are the receivers that are meant: where others may fetch, nothing is given up.
        """
        sent_by = times - self.transit
        if calls.forget(senders, sent_by, self.versions, self._to, usual, _FORGOTTEN):
            return
        for sender, time in zip(senders.tolist(), sent_by.tolist(), strict=True):
            if self._to[sender] is usual[sender]:
                _forget_older(self.versions[sender], time)

    def forget(self, sender: int) -> None:
        """The sender is known to be lost: nobody sees its models any more."""
        self.versions[sender] = []
        self._newest_versions[sender] = _NONE

    def models(self) -> Iterable[Vector]:
        """All models that are kept for others to fetch."""
        kept = (version.x for versions in self.versions for version in versions)
        return (x for x in kept if x is not _FORGOTTEN)

    def state(self, pool: Pool) -> list[list[list[object]]]:
        return [
            [[pack_number(v.sent), v.number, _packed(v.x, pool), pack_number(v.since)] for v in kept]
            for kept in self.versions
        ]

    def restore(self, saved: Saved, given_up: bool) -> None:
        """`given_up` says whether models may be missing, because nobody will fetch them any more."""
        self.versions = [
            [_version(item, given_up) for item in kept.items()] for kept in saved.items(len(self.versions))
        ]
        self._newest_versions = [kept[-1] if kept else _NONE for kept in self.versions]
        self.newest_sent = array("d", (newest[0] for newest in self._newest_versions))

    def paces(self) -> list[list[list[object]]]:
        """How long each publisher's steps are, as plain values."""
        return [pace.state() for pace in self._paces]

    def restore_paces(self, saved: Saved) -> None:
        for pace, item in zip(self._paces, saved.items(len(self._paces)), strict=True):
            pace.restore(item)
        self._steps = array("d", (pace.step for pace in self._paces))


def _forget_older(versions: list[Version], sent_by: float) -> None:
    for position in range(len(versions) - 1, 0, -1):
        if versions[position][0] <= sent_by:
            for k in range(position):
                sent, number, x, since = versions[k]
                if x is not _FORGOTTEN:
                    versions[k] = Version(sent, number, _FORGOTTEN, since)
            break


def _packed(x: Vector, pool: Pool) -> str | None:
    return None if x is _FORGOTTEN else pool.put(x)


def _version(saved: Saved, given_up: bool) -> Version:
    items = saved.items()
    if len(items) not in (3, 4):  # `since` as of this version
        saved.fail(f"has {len(items)} entries, not 4")
    sent, number, x, *since = items
    model = _FORGOTTEN if x.missing and given_up else x.message()
    return Version(sent.any_number(), number.integer(), model, *(time.any_number() for time in since))
