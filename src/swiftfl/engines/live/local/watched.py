"""A run on one machine as it looks from outside: what whoever runs it reads, and how it is asked to stop."""

from __future__ import annotations

import threading

from swiftfl.engines.live.local.forkserver import ForkServer
from swiftfl.engines.live.observed import Observed
from swiftfl.engines.live.status import FINISHED, STOPPED
from swiftfl.engines.setup import Setup
from swiftfl.engines.terms import Terms
from swiftfl.errors import UserError
from swiftfl.transports.base import Observer, TransportPlan
from swiftfl.vector import Vector


class Watched(Observed):
    """The state of a run on one machine, read by whoever runs it, written by its supervisor."""

    wires: TransportPlan
    _observer: Observer
    _nursery: ForkServer

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.living: set[int] = set()
        self.errors: dict[int, str] = {}
        self.terms = [Terms(w) for w in setup.weights]  # as they were last sent
        self._asked = threading.Event()

    def wait(self, seconds: float) -> bool:
        """Wait some time; whether the run is over."""
        return self._over.wait(seconds)

    def stop(self) -> None:
        """Ask everybody to stop where the run can go on later."""
        self._asked.set()

    @property
    def stopped(self) -> bool:
        """Whether it ended because it was asked to, before everybody had finished."""
        return any(self.board.phase(i) == STOPPED for i in range(self.n)) or (
            self._asked.is_set() and any(self.board.phase(i) != FINISHED for i in self.members())
        )

    def models(self) -> list[Vector]:
        """A copy of each client's newest model; x0 for one that has none."""
        return [self._newest(i) for i in range(self.n)]

    def _newest(self, i: int) -> Vector:
        model: Vector | None = self._observer.read(i, lambda x, version: x.copy())
        return self.x0.copy() if model is None else model

    def pid(self, i: int) -> int:
        return self._nursery.pids[i]

    @property
    def models_in_memory(self) -> int:
        """One per client, and what the transport keeps."""
        return self.n + self.wires.models_in_memory

    def fail_if_all_are_lost(self) -> None:
        """A run of which nobody is left has no result."""
        if len(self.members()) == 0:
            reason = next(iter(self.errors.values()), "every client was lost")
            raise UserError(f"no client is left: {reason}")
