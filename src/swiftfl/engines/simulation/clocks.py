"""Each client's clock and how its time was spent; who did what when, for those who are watched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from swiftfl.engines.saved import Saved


class Clock:
    """A client's time in seconds; every second is compute, communication or waiting.

    Time in which the client was not there (asleep, crashed, not yet joined) is none of the three.
    """

    __slots__ = ("asleep", "communication", "compute", "now", "waiting")

    def __init__(self) -> None:
        self.now = 0.0
        self.compute = 0.0
        self.communication = 0.0
        self.waiting = 0.0
        self.asleep = 0.0

    def compute_until(self, time: float) -> None:
        self.compute += time - self.now
        self.now = time

    def communicate(self, seconds: float) -> None:
        self.communication += seconds
        self.now += seconds

    def wait(self, seconds: float) -> None:
        self.waiting += seconds
        self.now += seconds

    def sleep(self, seconds: float) -> None:
        self.asleep += seconds
        self.now += seconds

    def state(self) -> list[float]:
        return [self.now, self.compute, self.communication, self.waiting, self.asleep]

    def restore(self, saved: Saved) -> None:
        now, *spent = saved.items(5)
        self.now = now.number(0.0)
        self.compute, self.communication, self.waiting, self.asleep = (part.number() for part in spent)


class Interval(NamedTuple):
    client: int
    activity: str
    start: float
    end: float


class WatchedClock(Clock):
    """A clock that remembers what its client did until a time.

    What a client does without a break is one interval, of however many verbs it consisted.
    """

    __slots__ = ("_client", "_until", "intervals")

    def __init__(self, client: int, until: float) -> None:
        super().__init__()
        self._client, self._until = client, until
        self.intervals: list[Interval] = []

    def compute_until(self, time: float) -> None:
        self._note("compute", time)
        super().compute_until(time)

    def communicate(self, seconds: float) -> None:
        self._note("communication", self.now + seconds)
        super().communicate(seconds)

    def wait(self, seconds: float) -> None:
        self._note("waiting", self.now + seconds)
        super().wait(seconds)

    def _note(self, activity: str, until: float) -> None:
        start, end = self.now, min(until, self._until)
        if end <= start:
            return
        last = self.intervals[-1] if self.intervals else None
        if last is not None and last.activity == activity and last.end == start:
            self.intervals[-1] = last._replace(end=end)
        else:
            self.intervals.append(Interval(self._client, activity, start, end))


class Timeline:
    """What some clients did in the first seconds of a run; the others keep plain clocks and pay nothing."""

    def __init__(self, seconds: float, clocks: Mapping[int, WatchedClock]) -> None:
        self.seconds = seconds
        self._clocks = clocks

    @property
    def intervals(self) -> list[Interval]:
        """By client and time; they do not overlap."""
        return [interval for i in sorted(self._clocks) for interval in self._clocks[i].intervals]
