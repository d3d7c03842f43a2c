"""Who computes, communicates or waits, and when: clocks that also remember intervals."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from swiftfl.engines.simulation.clocks import Clocks


class Interval(NamedTuple):
    client: int
    activity: str
    start: float
    end: float


class Timeline(Clocks):
    """Clocks that remember what some clients did until a time; put one in place of a world's `times`.

    What a client does without a break is one interval, of however many verbs it consisted. Worlds that
    nobody watches keep plain clocks and pay nothing.
    """

    def __init__(self, n: int, seconds: float, clients: Collection[int]) -> None:
        super().__init__(n)
        self.seconds = seconds
        self._last: dict[int, Interval | None] = dict.fromkeys(clients)
        self._over: list[Interval] = []

    def compute_until(self, i: int, time: float) -> None:
        self._note(i, "compute", time)
        super().compute_until(i, time)

    def communicate(self, i: int, seconds: float) -> None:
        self._note(i, "communication", self.clock[i] + seconds)
        super().communicate(i, seconds)

    def wait(self, i: int, seconds: float) -> None:
        self._note(i, "waiting", self.clock[i] + seconds)
        super().wait(i, seconds)

    def _note(self, i: int, activity: str, until: float) -> None:
        start, end = self.clock[i], min(until, self.seconds)
        if i not in self._last or end <= start:
            return
        last = self._last[i]
        if last is not None and last.activity == activity and last.end == start:
            self._last[i] = last._replace(end=end)
            return
        if last is not None:
            self._over.append(last)
        self._last[i] = Interval(i, activity, start, end)

    @property
    def intervals(self) -> list[Interval]:
        """By client and time; they do not overlap."""
        latest = [last for last in self._last.values() if last is not None]
        return sorted([*self._over, *latest], key=lambda k: (k.client, k.start))
