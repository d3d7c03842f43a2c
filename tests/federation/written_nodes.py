"""A node's folder as `NodeRecord` writes it, without a network: who comes and goes is what the test says."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from swiftfl.engines.assignment import Assignment
from swiftfl.engines.live.journal import split, version
from swiftfl.engines.live.status import Tally
from swiftfl.federation.control import NodeControl
from swiftfl.federation.plan import NodePlan, PlannedNeighbour
from swiftfl.federation.record import NodeRecord
from swiftfl.record.facts import ClientState
from swiftfl.transports.wire import Refusal, Refusals, RefusedError

NEIGHBOURS = ("basel", "cordoba")
CONFIG = {"algorithm": {"name": "swift", "communication_set": 0, "weights": "ccs"}}


class WrittenNode:
    """Looks like a `Node` to whoever records it."""

    def __init__(self, folder: Path, neighbours: tuple[str, ...] = NEIGHBOURS, last: float = 1000) -> None:
        near = {name: PlannedNeighbour(k, name) for k, name in enumerate(neighbours, start=1)}
        self.plan = NodePlan("0" * 32, "aarhus", 0, folder, near)
        self.said: list[str] = []
        self.say = self.said.append
        self.control = NodeControl(list, lambda: False, self.say, last)
        self.here: dict[int, int] = {}
        self.refusals = Refusals()
        self.gate = SimpleNamespace(newest={})
        self.published: dict[int, float] = {}
        self.membership = SimpleNamespace(selected=None)
        self.connection = SimpleNamespace(
            view=lambda: dict(self.here), wire=SimpleNamespace(refusals=self.refusals)
        )
        ages = SimpleNamespace(newest=self._newest)
        self.client = SimpleNamespace(server=SimpleNamespace(gate=self.gate, ages=ages))
        self.record = NodeRecord(self.plan, CONFIG, last, self.say)
        self._number = {name: k for k, name in self.plan.names().items()}
        self._arrivals = dict.fromkeys(self._number, 0)

    def _newest(self, neighbours: Any) -> dict[int, tuple[int, float]]:
        there = [k for k in neighbours if k in self.published]
        return {k: (split(self.gate.newest[k])[1], self.published[k]) for k in there}

    def comes(self, name: str) -> None:
        self._arrivals[name] += 1
        self.here[self._number[name]] = self._arrivals[name]

    def goes(self, name: str) -> None:
        del self.here[self._number[name]]

    def sends(self, name: str, step: int) -> None:
        self.gate.newest[self._number[name]] = version(7, step)
        self.published[self._number[name]] = time.perf_counter()

    def sends_rubbish(self, name: str, reason: Refusal = Refusal.REPLAYED) -> None:
        self.refusals.count(name, RefusedError(reason))

    def agrees(self, epoch: int, nodes: int) -> None:
        self.membership.selected = Assignment(epoch, nodes, True, 1.0 / nodes, {}, 1.0), None

    def steps(self, count: int, loss: float = 0.5) -> None:
        """So many steps, each of which takes ten milliseconds by the record's clock."""
        began, tally = time.perf_counter(), self.control.tally
        for k in range(count):
            tally.steps += 1
            tally.compute += 0.008
            tally.communication += 0.002
            tally.loss, tally.age_sum, tally.age_count = loss, tally.age_sum + 1.5, tally.age_count + 1
            at = began + 0.01 * (k - count)
            self.record.steps.add(tally.steps, at, 0.008, 0.0, 0.002, loss, 1.5, at)
            self.control.report(tally.steps + 1, tally)

    def written(self, state: ClientState | None = None) -> WrittenNode:
        self.record.write(self, state)  # type: ignore[arg-type]
        return self

    def killed(self) -> None:
        """Nothing more is written, and the lock is free."""
        self.record.steps.close()
        self.record._held.close()

    def ends(self, phase: str = "stopped", **values: float) -> None:
        self.record.close(self, phase, values)  # type: ignore[arg-type]

    def goes_on_from(self, tally: Tally) -> WrittenNode:
        self.control.report(tally.steps + 1, tally)
        return self
