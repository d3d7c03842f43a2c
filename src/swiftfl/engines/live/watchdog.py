"""Notices clients that make no progress: blocked in a gradient, or stopped from outside."""

from __future__ import annotations

import time
from collections.abc import Mapping

from swiftfl.engines.live.status import READY, RUNNING, STARTING, StatusTable

_SLOW_STEPS = 20  # a step may take this many times as long as those before it
_ASLEEP = 2.0  # a supervisor that was not run for this long has itself been stopped


class Watchdog:
    """Remembers since when each client has been where it is."""

    def __init__(self, status: StatusTable) -> None:
        self.status = status
        now = time.monotonic()
        self._looked = now
        self._seen: dict[int, tuple[float, float, int]] = {}
        self._since = dict.fromkeys(range(status.n), now)

    def look(self, phases: Mapping[int, int]) -> None:
        """Notice who has moved since the last look."""
        now = time.monotonic()
        if now - self._looked > _ASLEEP:  # so were the clients, perhaps: Ctrl-Z stops them all
            self._since = {i: since + now - self._looked for i, since in self._since.items()}
        self._looked = now
        for i, phase in phases.items():
            seen = (self.status.c(i), self.status.value(i, "incarnation"), phase)
            # Whoever is ready waits for the start of the run, however long that takes, and is not late.
            waits_for_start = phase == READY and not self.status.started
            if waits_for_start or self._seen.get(i) != seen:
                self._seen[i], self._since[i] = seen, now

    def idle(self, i: int) -> float:
        """Seconds for which client i has made no progress."""
        return self._looked - self._since[i]

    def stalled(self, phases: Mapping[int, int], seconds: float) -> list[int]:
        """Who is busy with a step of its own, waits for nobody, and has made no progress for too long."""
        return [
            i
            for i, phase in phases.items()
            if phase in (STARTING, RUNNING) and not self.status.waits(i) and self.is_late(i, seconds)
        ]

    def is_late(self, i: int, seconds: float) -> bool:
        """Whether client i has made no progress for so long, and longer than its steps take."""
        return self.idle(i) > max(seconds, _SLOW_STEPS * self._step_seconds(i))

    def _step_seconds(self, i: int) -> float:
        """How long a step of client i takes, or, if it has not taken any, of the slowest one."""
        steps = self.status.column("steps")
        spent: list[float] = [sum(parts) for parts in zip(*self.status.seconds().values(), strict=True)]
        if steps[i] > 0:
            return spent[i] / steps[i]
        return max((s / k for s, k in zip(spent, steps, strict=True) if k > 0), default=0.0)
