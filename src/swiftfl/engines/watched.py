"""A live run as it looks from outside, whoever makes its processes: what is measured and shown of it."""

from __future__ import annotations

import threading
import time
from typing import Any

from swiftfl.engines.board import FINISHED, STOPPED, Board
from swiftfl.engines.nursery import Nursery
from swiftfl.engines.setup import Setup
from swiftfl.engines.world import Terms
from swiftfl.errors import UserError
from swiftfl.transports.shared_memory import Observer, SharedMemory
from swiftfl.vector import Vector


class Watched:
    """The state of a run on one machine, read by whoever runs it, written by its supervisor."""

    wires: SharedMemory
    _observer: Observer
    _nursery: Nursery

    def __init__(self, setup: Setup) -> None:
        n = setup.n
        self.setup, self.n = setup, n
        self.in_rounds: bool = getattr(setup.algorithm, "in_rounds", True)
        self.network = None if setup.network is None else setup.network()
        self.x0 = setup.workload.initial(setup.seed)
        self.board = Board(n)
        self.living: set[int] = set()
        self.lost: list[int] = []  # who is not there now
        self.restarts = [0] * n
        self.log: list[dict[str, Any]] = []
        self.warnings: list[str] = []
        self.errors: dict[int, str] = {}
        self.terms = [Terms(w) for w in setup.weights]  # as they were last sent
        self.born = self.began = self.ended_at = time.perf_counter()
        self._losses = (0.0, 0.0)
        self._over, self._asked = threading.Event(), threading.Event()

    def wait(self, seconds: float) -> bool:
        """Wait some time; whether the run is over."""
        return self._over.wait(seconds)

    @property
    def over(self) -> bool:
        return self._over.is_set()

    def stop(self) -> None:
        """Ask everybody to stop where the run can go on later."""
        self._asked.set()

    @property
    def stopped(self) -> bool:
        """Whether it ended because it was asked to, before everybody had finished."""
        return any(self.board.phase(i) == STOPPED for i in range(self.n)) or (
            self._asked.is_set() and any(self.board.phase(i) != FINISHED for i in self.members())
        )

    @property
    def iteration(self) -> int:
        """Client steps in all (also those of earlier lives that a save kept)."""
        return int(sum(max(0.0, c - 1) for c in self.board.column("c")))

    @property
    def now(self) -> float:
        return (self.ended_at if self.over else time.perf_counter()) - self.began

    def members(self) -> list[int]:
        """The clients whose models count."""
        return [i for i in range(self.n) if i not in self.lost]

    def models(self) -> list[Vector]:
        """A copy of each client's newest model; x0 for one that has none."""
        return [self._newest(i) for i in range(self.n)]

    def _newest(self, i: int) -> Vector:
        model: Vector | None = self._observer.read(i, lambda x, version: x.copy())
        return self.x0.copy() if model is None else model

    def pid(self, i: int) -> int:
        return self._nursery.pids[i]

    def train_loss(self) -> float | None:
        """The mean loss of the batches since the last call."""
        before = self._losses
        self._losses = sum(self.board.column("loss_sum")), sum(self.board.column("loss_count"))
        count = self._losses[1] - before[1]
        return (self._losses[0] - before[0]) / count if count > 0 else None

    def given_influence(self) -> list[float]:
        """What the coefficients in force were made for."""
        return list(self.setup.influence) if self.network is None else self.network.influence.tolist()

    @property
    def start_seconds(self) -> float:
        """How long it took until every client was ready."""
        return self.began - self.born

    @property
    def models_in_memory(self) -> int:
        """One per client, and its slots in shared memory."""
        return sum(1 + self.wires.layout.slots(i) for i in range(self.n))

    def fail_if_all_are_lost(self) -> None:
        """A run of which nobody is left has no result."""
        if len(self.members()) == 0:
            reason = next(iter(self.errors.values()), "every client was lost")
            raise UserError(f"no client is left: {reason}")
