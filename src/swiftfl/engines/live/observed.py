"""What every live run can tell of itself while it goes on, whoever makes its processes."""

from __future__ import annotations

import threading
import time
from typing import Any

from swiftfl.engines.live.status import StatusTable
from swiftfl.engines.setup import Setup


class Observed:
    """The state of a live run: its board, its network, who is lost, and its clocks."""

    def __init__(self, setup: Setup) -> None:
        self.setup, self.n = setup, setup.n
        self.in_rounds = setup.algorithm.in_rounds
        self.network = None if setup.network is None else setup.network()
        self.x0 = setup.workload.initial(setup.seed)
        self.board = StatusTable(self.n)
        self.lost: list[int] = []  # who is not there now
        self.restarts = [0] * self.n
        self.log: list[dict[str, Any]] = []
        self.warnings: list[str] = []
        self.born = self.began = self.ended_at = time.perf_counter()
        self._over = threading.Event()
        self._losses = (0.0, 0.0)
        self._measured_at, self._steps_then = 0, [0.0] * self.n
        self._away: set[int] = set()  # who was not there all the time since the last measurement

    @property
    def over(self) -> bool:
        return self._over.is_set()

    @property
    def iteration(self) -> int:
        """Client steps in all (also those of earlier lives that a save kept)."""
        return int(sum(max(0.0, c - 1) for c in self.board.column("c")))

    @property
    def now(self) -> float:
        return (self.ended_at if self.over else time.perf_counter()) - self.began

    @property
    def start_seconds(self) -> float:
        """How long it took until every client was ready."""
        return self.began - self.born

    def members(self) -> list[int]:
        """The clients whose models count."""
        return [i for i in range(self.n) if i not in self.lost]

    def train_loss(self) -> float | None:
        """The mean loss of the batches since the last call."""
        before = self._losses
        self._losses = sum(self.board.column("loss_sum")), sum(self.board.column("loss_count"))
        count = self._losses[1] - before[1]
        return (self._losses[0] - before[0]) / count if count > 0 else None

    def given_influence(self) -> list[float]:
        """What the coefficients in force were made for."""
        return list(self.setup.influence) if self.network is None else self.network.influence.tolist()

    def _note(self, event: str, client: int | None = None, **more: object) -> None:
        row: dict[str, Any] = {"event": event, "iteration": self.iteration, "time": round(self.now, 3)}
        self.log.append({**row, **({} if client is None else {"client": client}), **more})

    def _measured(self) -> bool:
        """Every so many steps, take each client's share of them as its influence; whether it was time."""
        network = self.network
        if network is None or not network.dynamics.measured:
            return False
        if self.iteration - self._measured_at < network.dynamics.measure_every * self.n:
            return False
        steps = self.board.column("c")
        taken = [max(0, round(now - then)) for now, then in zip(steps, self._steps_then, strict=True)]
        network.measure(taken, self._away)
        self._away = set(self.lost)
        self._measured_at, self._steps_then = self.iteration, steps
        return True
