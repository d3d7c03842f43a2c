"""What every live engine has: a supervisor, and the run as it is read through it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from swiftfl.engines.assignment import Assignment, first_assignments
from swiftfl.engines.live.changes import Newcomers, PlannedChanges
from swiftfl.engines.live.options import LiveOptions
from swiftfl.engines.live.resume import ResumePoint
from swiftfl.engines.live.supervisor import Clients, Supervisor
from swiftfl.engines.setup import Setup
from swiftfl.engines.terms import Terms


class Engine(Clients, Newcomers, Protocol):
    """What the supervisor and the planned changes ask of an engine."""


class SupervisedRun:
    """A run whose clients a supervisor leads; engines add how clients are made and reached.

    `resume` says from where each client goes on (None: a new run). `folder` takes the clients' saves and
    their journals; without it there are none.
    """

    def __init__(
        self,
        setup: Setup,
        clients: Engine,
        folder: Path | None,
        options: LiveOptions,
        resume: ResumePoint | None,
        notice_seconds: float,
    ) -> None:
        self.setup, self.n, self.folder, self.options = setup, setup.n, folder, options
        self.resume = resume or ResumePoint.first(setup.n)
        self.x0 = setup.workload.initial(setup.seed)
        self.supervisor = Supervisor(setup, options, clients, self.resume.elapsed, notice_seconds)
        self.status, self.network = self.supervisor.status, self.supervisor.network
        for i, start in enumerate(self.resume.starts):
            self.status.place(i, 1 if start is None else start.c)
        self.supervisor.skipped = list(self.resume.skipped) or [0] * self.n
        self.changes = PlannedChanges(self.supervisor, clients, self.resume.changes)

    def possible_neighbours(self) -> list[tuple[int, ...]]:
        """Whom each client may ever have as a neighbour."""
        near = [dict.fromkeys(w.of) for w in self.setup.weights]
        for i, k in () if self.network is None else sorted(self.network.possible_edges()):
            near[i][k] = near[k][i] = None
        return [tuple(those) for those in near]

    def first_terms(self) -> list[Terms]:
        """Everybody's terms at the start, by who is there and the changes that earlier sessions have made."""
        if self.network is not None and (self.resume.changes or self.supervisor.absent):
            self.network.renewals += 1
        return self.renewed_terms()

    def first_assignments(self) -> dict[int, Assignment]:
        """The same for clients that run CCS themselves: what each is told, of those who are there."""
        network = self.network
        if network is None or not (self.resume.changes or self.supervisor.absent):
            return dict(enumerate(first_assignments(self.setup.weights, self.setup.influence)))
        count, network.renewals = network.renewals, -1
        told = network.assignments()  # of epoch 0
        network.renewals = count
        return told

    @property
    def iteration(self) -> int:
        return self.supervisor.iteration

    @property
    def now(self) -> float:
        return self.supervisor.now

    def members(self) -> list[int]:
        return self.supervisor.members()

    def take_train_loss(self) -> float | None:
        return self.supervisor.take_train_loss()

    def epochs(self) -> list[float]:
        return self.supervisor.epochs()

    def seconds(self) -> dict[str, list[float]]:
        return self.supervisor.seconds()

    def take_log(self) -> list[dict[str, Any]]:
        return self.supervisor.take_log()

    def discarding(self) -> list[int]:
        return self.supervisor.discarding()

    def renewed_terms(self) -> list[Terms]:
        """As they hold now, worked out anew for the record: clients work out, or select, their own."""
        if self.network is None or not self.network.renewals:
            return [Terms(w) for w in self.setup.weights]
        count, renewed = self.network.renewals, self.network.renew()
        self.network.renewals = count
        return [Terms(*renewed[i]) if i in renewed else Terms(self.setup.weights[i]) for i in range(self.n)]
