"""How a live run is brought to a stop, an early finish or a common save.

Where clients never wait for each other, each does it before its next step. Where they meet in rounds,
all must do it before the same round, or some would wait for ever for those who did not. The engine
names a round that nobody seems to have begun; clients *hold* when they reach it. If somebody had begun
it unseen, it cannot go on, for its neighbours hold, and the round is raised; when all hold at the same
one, that is made final.
"""

from __future__ import annotations

import time

from swiftfl.engines.live.status import FINISHED, HOLDING, READY, RUNNING, STARTING, STOPPED, StatusTable

_LOOK_AGAIN = 0.3


class Ending:
    """Brings clients to a common end."""

    def __init__(self, board: StatusTable, in_rounds: bool, patience: float) -> None:
        self.board, self.in_rounds, self.patience = board, in_rounds, patience
        self._at: float | None = None
        self._began = self._looked = 0.0
        self._saved_at = time.perf_counter()

    def stop(self, phases: dict[int, int]) -> list[int]:
        """Stop the clients of these phases; who did not stop in time, and is not worth waiting for."""
        now = time.perf_counter()
        if self._at is None:
            self._began = now
            self.board.go()
        self._approach(phases, now, self.board.stop_at)
        if now - self._began < self.patience:
            return []
        return [i for i, phase in phases.items() if phase not in (STOPPED, FINISHED)]

    def finish(self, phases: dict[int, int]) -> None:
        """End the run here, as if everybody had done its steps."""
        self._approach(phases, time.perf_counter(), self.board.finish_at)

    def save(self, phases: dict[int, int], every: float, at: int = 0) -> None:
        """From time to time, name a round before which everybody saves its state: not before round `at`."""
        now = time.perf_counter()
        if now - self._saved_at >= every:
            self._saved_at = now
            self.board.save_at(max(at, int(self._furthest(phases)) + 3))

    def _approach(self, phases: dict[int, int], now: float, set_round: object) -> None:
        assert callable(set_round)
        if not self.in_rounds:
            if self._at is None:
                self._at = 0.0
                set_round(0.0)
                self.board.make_final()
            return
        if self._at is None:
            self._at, self._looked = self._furthest(phases) + 1, now
            set_round(self._at)
            return
        active = {i: p for i, p in phases.items() if p not in (FINISHED, STOPPED, STARTING, READY)}
        if all(p == HOLDING and self.board.rows[i, 0] == self._at for i, p in active.items()):
            self.board.make_final()
        elif now - self._looked >= _LOOK_AGAIN:
            self._looked = now
            ahead = [i for i, p in active.items() if p == RUNNING and self.board.rows[i, 0] >= self._at]
            if ahead:
                self._at = self._furthest(phases) + 1
                set_round(self._at)

    def _furthest(self, phases: dict[int, int]) -> float:
        return max((float(self.board.rows[i, 0]) for i, p in phases.items() if p != FINISHED), default=0.0)
