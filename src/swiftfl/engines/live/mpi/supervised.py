"""A run under MPI as its first rank sees and leads it.

It says go, notices who is lost or silent, has coefficients renewed, ends the run early if that was asked
for, and knows everybody's numbers. All of this happens in the thread of its channel: no client waits for it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from swiftfl.engines.live.mpi.control import FIRST, RankChannel
from swiftfl.engines.live.options import LiveOptions
from swiftfl.engines.live.resume import ResumePoint
from swiftfl.engines.live.status import COLUMNS, FINISHED, STOPPED
from swiftfl.engines.live.supervisor import Supervisor
from swiftfl.engines.setup import Setup
from swiftfl.engines.terms import Terms
from swiftfl.transports.messages.message import Message
from swiftfl.transports.mpi import MpiJob
from swiftfl.vector import Vector

_NOTICE_SECONDS = 1.0  # within which every rank has heard of something


class Supervised:
    """The state of a run on every rank; it is complete only where it is supervised, and at its end."""

    def __init__(
        self,
        setup: Setup,
        world: MpiJob,
        folder: Path | None = None,
        options: LiveOptions = LiveOptions(),
        resume: ResumePoint | None = None,
    ) -> None:
        self.setup, self.n = setup, setup.n
        self.in_rounds = setup.algorithm.in_rounds
        self.world, self.folder, self.options = world, folder, options
        self.resume = resume or ResumePoint.first(setup.n)
        self.me = world.rank
        self.x0 = setup.workload.initial(setup.seed)
        self.supervisor = Supervisor(setup, options, self, self.resume.elapsed, _NOTICE_SECONDS)
        self.status, self.network = self.supervisor.status, self.supervisor.network
        for i, start in enumerate(self.resume.starts):
            self.status.place(i, 1 if start is None else start.c)
        self.transport = world.connect([tuple(w.of) for w in setup.weights], self.x0)
        self.channel = RankChannel(self.transport, self.network, self.status)
        self.channel.supervise = self._supervise
        self.silent: list[int] = []
        self._finals: dict[int, Message] = {}

    # --- the supervisor, on the first rank -------------------------------------------------------

    def _living(self) -> list[int]:
        return [i for i in range(self.n) if i not in self.transport.progress.gone]

    def _supervise(self) -> None:
        for i in sorted(self.transport.progress.gone.difference(self.supervisor.lost)):
            self.supervisor.lose(i, "its rank died")
        if self.channel.asked:
            self.supervisor.ask()
        living = self._living()
        self.supervisor.tick(living)
        phases = {i: self.status.phase(i) for i in living}
        if self.status.started and not all(phase == FINISHED for phase in phases.values()):
            self._give_up_the_silent(phases)

    def _give_up_the_silent(self, phases: dict[int, int]) -> None:
        """When everybody else is done, a rank that has said nothing for a while is not waited for."""
        behind = [i for i, phase in phases.items() if phase != FINISHED]
        now = time.monotonic()
        if all(i != FIRST and now - self.channel.last_heard[i] > self.options.patience for i in behind):
            for i in behind:
                self.kill(i)

    def mark_lost(self, i: int) -> None:
        self.channel.lose(i)
        self.transport.mark_gone(i)

    def renew(self, from_round: int) -> None:
        self.channel.renew(from_round)

    def kill(self, i: int) -> None:
        """A rank cannot be ended from here: nobody waits for it any more."""
        if i not in self.silent and i != FIRST:
            self.silent.append(i)
            self.supervisor.lose(i, f"silent for {self.options.patience:g} s")

    # --- what can be seen of it, on the recorder -------------------------------------------------

    def stop(self) -> None:
        """Stop where the run can go on later; may be called by a signal handler."""
        self.channel.ask()

    @property
    def stopped(self) -> bool:
        return self.status.phase(self.me) == STOPPED

    @property
    def iteration(self) -> int:
        return self.supervisor.iteration

    @property
    def now(self) -> float:
        return self.supervisor.now

    @property
    def over(self) -> bool:
        return self.supervisor.over.is_set()

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

    def figures(self) -> dict[str, Any]:
        return {**self.supervisor.figures(self.terms), "mpi": self.world.library}

    @property
    def models(self) -> list[Vector]:
        """Everybody's last model; x0 for the lost."""
        skip = len(COLUMNS)
        found = {k: message.vector[skip:].astype(self.x0.dtype) for k, message in self._finals.items()}
        return [found.get(i, self.x0) for i in range(self.n)]

    @property
    def terms(self) -> list[Terms]:
        """As they hold now, for everybody."""
        if self.network is None or not self.network.renewals:
            return [Terms(w) for w in self.setup.weights]
        count, renewed = self.network.renewals, self.network.renew()
        self.network.renewals = count
        return [Terms(*renewed[i]) if i in renewed else Terms(self.setup.weights[i]) for i in range(self.n)]

    @property
    def models_in_memory(self) -> int:
        """As on this rank: its slots, what it received, and its own."""
        return self.n * (1 + self.transport.models_in_memory)
