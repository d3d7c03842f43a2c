"""How old the neighbours' models are that a live client averages."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping

from swiftfl.engines.ages import Pace
from swiftfl.engines.live.inbox import Gate, LazyInbox, NewestInbox
from swiftfl.engines.live.journal import split
from swiftfl.engines.live.status import Tally
from swiftfl.engines.setup import Setup
from swiftfl.transports.base import Transport


class ModelAges:
    """Which of its neighbours' models a client has, and how many steps behind they were when averaged."""

    def __init__(self, setup: Setup, transport: Transport, gate: Gate, tally: Tally) -> None:
        self.paces: defaultdict[int, Pace] = defaultdict(Pace)  # of the neighbours
        self._setup, self._transport, self._gate, self._tally = setup, transport, gate, tally
        self._age = math.nan  # of the models of this step
        self._met: tuple[float, Mapping[int, int]] = (0.0, {})  # when, and in which round, clients met last

    def note(self, inbox: LazyInbox) -> None:
        """These models have been averaged; those of an exchange are one step old."""
        if inbox.exchanged:
            self._met = (time.perf_counter(), inbox.exchanged)
            self._add(float(len(inbox.exchanged)), len(inbox.exchanged))
        elif isinstance(inbox, NewestInbox):
            last = self._setup.steps_of  # after which a client has finished, and nothing newer comes
            ages = [age for k, age in inbox.measured().items() if split(inbox.fetched[k])[1] <= last(k)]
            self._add(sum(ages), len(ages))

    def _add(self, total: float, count: int) -> None:
        if count:
            self._age = total / count
            self._tally.age_sum += total
            self._tally.age_count += count

    def take(self) -> float:
        """The mean age of the models of this step; NaN if there were none, or it was not measured."""
        age, self._age = self._age, math.nan
        return age

    def newest(self, neighbours: Iterable[int]) -> dict[int, tuple[int, float]]:
        """By neighbour, the counter of its newest model that was used, and since when that was there."""
        now, (met, rounds) = time.perf_counter(), self._met
        found = {k: (rounds[k], met) for k in neighbours if k in rounds}
        for k in neighbours:
            if k in self._gate.newest and k not in rounds:
                since = self._transport.since_published(k)
                if since is not None:
                    found[k] = (split(self._gate.newest[k])[1], now - since)
        return found
