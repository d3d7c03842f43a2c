"""How a live run comes to a common stop, an early finish, a pause or a common save.

Where clients never wait for each other, each does it before its next step. Where they meet in rounds, all
must do it before the same round, or some would wait for ever for those who did not. The supervisor names a
round that nobody seems to have begun, and clients hold when they reach it. If somebody had begun it
unnoticed, that client cannot complete it, because its neighbours hold, and a later round is named. When all
hold at the same round, the order becomes final.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

from swiftfl.engines.live.status import FINISHED, HOLDING, READY, RUNNING, STARTING, STOPPED, StatusTable

_LOOK_AGAIN = 0.3
_SAVE_AHEAD = 3  # rounds


class CommonRound:
    """Brings the clients to a round that they have in common."""

    def __init__(self, status: StatusTable, in_rounds: bool) -> None:
        self.status, self.in_rounds = status, in_rounds
        self._at: float | None = None
        self._looked = 0.0
        self._saved_at = time.perf_counter()

    def approach(self, phases: Mapping[int, int], order: Callable[[float], None]) -> None:
        """Move on towards the round at which `order` (stop_at or finish_at) becomes final."""
        if not self.in_rounds:
            if self._at is None:
                self._at = 0.0
                order(0.0)
                self.status.make_final()
            return
        if self._all_have_come(phases, order):
            self.status.make_final()

    def pause(self, phases: Mapping[int, int], at: int) -> int | None:
        """Have everybody hold before the same round, not before round `at`; which it is, once all do."""
        return int(self._at or 0) if self._all_have_come(phases, self.status.pause_at, at) else None

    def go_on(self) -> None:
        """The end of a pause."""
        if self._at is not None:
            self._at = None
            self.status.pause_at(math.inf)

    def _all_have_come(self, phases: Mapping[int, int], order: Callable[[float], None], at: int = 0) -> bool:
        """Whether all hold before one round; if none is named, or somebody has passed it, name one."""
        now = time.perf_counter()
        if self._at is None:
            self._name_round(phases, order, at)
        elif self._all_hold(phases):
            return True
        elif now - self._looked >= _LOOK_AGAIN:
            self._looked = now
            if any(self._has_passed(i, phase, self._at) for i, phase in phases.items()):
                self._name_round(phases, order, at)
        return False

    def _has_passed(self, i: int, phase: int, at: float) -> bool:
        """Whether client i has begun this round; one without neighbours may hold before a later one."""
        c = self.status.c(i)
        return (phase == RUNNING and c >= at) or (phase == HOLDING and c > at)

    def save(self, phases: Mapping[int, int], every: float, at: int = 0) -> None:
        """From time to time, name a round, not before round `at`, before which everybody saves its state."""
        now = time.perf_counter()
        if now - self._saved_at >= every:
            self._saved_at = now
            self.status.save_at(max(at, int(self._furthest(phases)) + _SAVE_AHEAD))

    def _name_round(self, phases: Mapping[int, int], order: Callable[[float], None], at: int) -> None:
        self._at, self._looked = max(at, self._furthest(phases) + 1), time.perf_counter()
        order(self._at)

    def _all_hold(self, phases: Mapping[int, int]) -> bool:
        passive = (FINISHED, STOPPED, STARTING, READY)
        return all(
            phase == HOLDING and self.status.c(i) == self._at
            for i, phase in phases.items()
            if phase not in passive
        )

    def _furthest(self, phases: Mapping[int, int]) -> float:
        return max((self.status.c(i) for i, phase in phases.items() if phase != FINISHED), default=0.0)
