"""What every live engine has: a supervisor, and the run as it is read through it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, Protocol

from swiftfl.engines.assignment import Assignment, first_assignments
from swiftfl.engines.influence import rate_report
from swiftfl.engines.live.changes import Newcomers, PlannedChanges
from swiftfl.engines.live.facts import FactsPlan, client_records
from swiftfl.engines.live.inbox import REASONS
from swiftfl.engines.live.options import LiveOptions
from swiftfl.engines.live.resume import ResumePoint
from swiftfl.engines.live.status import StatusTable
from swiftfl.engines.live.supervisor import Clients, Supervisor
from swiftfl.engines.membership import possible_neighbours
from swiftfl.engines.setup import Setup, refuse_in_live
from swiftfl.engines.terms import Terms
from swiftfl.engines.traffic import communication
from swiftfl.record.facts import Table

_MOST_WARNINGS = 20


class SupervisedEngine(Clients, Newcomers, Protocol):
    """What the supervisor and the planned changes ask of an engine."""


class SupervisedRun:
    """A run whose clients a supervisor leads; engines add how clients are made and reached.

    `resume` says from where each client goes on (None: a new run). `folder` takes the clients' saves and
    their journals; without it there are none.
    """

    def __init__(
        self,
        setup: Setup,
        clients: SupervisedEngine,
        folder: Path | None,
        options: LiveOptions,
        resume: ResumePoint | None,
        notice_seconds: float,
        facts: FactsPlan | None = None,
        status: StatusTable | None = None,
    ) -> None:
        first_message = refuse_in_live(setup, options.restart_lost)
        self.setup, self.n, self.folder, self.options, self.facts = setup, setup.n, folder, options, facts
        self.resume = resume or ResumePoint.first(setup.n)
        self.x0 = setup.workload.initial(setup.seed)
        self.sends_models = first_message is None
        self.first_message = self.x0 if first_message is None else first_message(self.x0)
        self.supervisor = Supervisor(setup, options, clients, self.resume.elapsed, notice_seconds, status)
        self.status, self.network = self.supervisor.status, self.supervisor.network
        for i, start in enumerate(self.resume.starts):
            self.status.place(i, 1 if start is None else start.c)
        self.supervisor.skipped = list(self.resume.skipped) or [0] * self.n
        self._losses = (0.0, 0.0)  # their sum and their number at the last call of `take_train_loss`
        self.changes = PlannedChanges(self.supervisor, clients, self.resume.changes)

    def neighbourhoods(self) -> list[tuple[int, ...]]:
        """Whom each client may ever have as a neighbour."""
        return possible_neighbours(self.setup.weights, self.network)

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

    def take_log(self) -> list[dict[str, Any]]:
        return self.supervisor.take_log()

    def take_train_loss(self) -> float | None:
        """The mean loss of the batches since the last call."""
        before = self._losses
        self._losses = sum(self.status.column("loss_sum")), sum(self.status.column("loss_count"))
        count = self._losses[1] - before[1]
        return (self._losses[0] - before[0]) / count if count > 0 else None

    def client_records(self) -> Table:
        supervisor = self.supervisor
        returned = {i for i, count in enumerate(supervisor.restarts) if count}
        gone = {*supervisor.lost} - supervisor.joining
        return client_records(self.status, supervisor.now, gone, supervisor.absent, returned)

    def epochs(self) -> list[float]:
        """Per client: its steps over its steps per epoch."""
        steps = self.status.column("steps")
        return [taken / own.steps_per_epoch for taken, own in zip(steps, self.setup.batches, strict=True)]

    def seconds(self) -> dict[str, list[float]]:
        """Per client, its time in three parts, and of the processor."""
        return {**self.status.seconds(), "cpu": self.status.column("cpu")}

    def discarding(self) -> list[int]:
        """The members whose last step was left out, because its result was not finite."""
        return [i for i in self.members() if self.status.value(i, "discarding")]

    def figures_with(self, terms: Collection[Terms]) -> dict[str, Any]:
        """The numbers of a summary that only a live run has; `terms` are those that hold now."""
        status, supervisor = self.status, self.supervisor
        refused = {reason: int(sum(status.column(reason))) for reason in REASONS}
        steps = sum(status.column("steps"))
        return {
            "wall_seconds": supervisor.now,
            "start_seconds": supervisor.start_seconds,
            "lost": sorted(supervisor.lost),
            "restarts": {str(i): count for i, count in enumerate(supervisor.restarts) if count},
            "renewals": 0 if self.network is None else self.network.renewals,
            **({} if supervisor.own_ccs is None else {"ccs": supervisor.own_ccs.figures()}),
            "refused": sum(refused.values()),
            "refused_because": refused,
            "discarded": int(sum(status.column("discarded"))),
            "saves_failed": int(sum(status.column("saves_failed"))),
            "cpu_milliseconds_per_step": 1e3 * sum(status.column("cpu")) / steps if steps else 0.0,
            "communication": communication(status.tally(i).traffic for i in range(self.n)),
            **self._influence(terms),
            "warnings": supervisor.warnings[:_MOST_WARNINGS],
        }

    def _influence(self, terms: Collection[Terms]) -> dict[str, object]:
        """The influence that the coefficients in force were made for, and the true one."""
        given = self.setup.influence if self.network is None else self.network.influence.tolist()
        seconds = [sum(parts) for parts in zip(*self.status.seconds().values(), strict=True)]
        weights = [each.w for each in terms]
        return rate_report(self.members(), given, weights, self.status.column("steps"), seconds).row()

    def renewed_terms(self) -> list[Terms]:
        """As they hold now, worked out anew for the record: clients work out, or select, their own."""
        if self.network is None or not self.network.renewals:
            return [Terms(w) for w in self.setup.weights]
        renewed = self.network.coefficients()
        return [Terms(*renewed[i]) if i in renewed else Terms(self.setup.weights[i]) for i in range(self.n)]
