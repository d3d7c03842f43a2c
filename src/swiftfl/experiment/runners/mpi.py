"""Runs under MPI: every rank builds the run and has one client, and the first rank leads.

mpiexec -n 16 swiftfl run digits --engine mpi
"""

from __future__ import annotations

import atexit
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from swiftfl.engines.engine import Engine
from swiftfl.engines.live.mpi.engine import MpiEngine
from swiftfl.engines.live.resume import ResumePoint, find_resume_point
from swiftfl.errors import UserError
from swiftfl.experiment.build import Parts
from swiftfl.experiment.config import Config
from swiftfl.experiment.facts import facts_plan
from swiftfl.experiment.measure import Measurement, assess, measurement_of
from swiftfl.experiment.notices import notice
from swiftfl.experiment.runners.live import LiveRunner, check_configuration, keep_configuration, live_options
from swiftfl.experiment.runners.runner import Past, Row, resume_command
from swiftfl.record import RunFolder
from swiftfl.record.folder import CLIENTS
from swiftfl.signals import StopRequest
from swiftfl.transports.mpi import world

_LOOK = 0.1


class MpiRunner(LiveRunner):
    """This rank's part in a run."""

    engine: MpiEngine

    def __init__(self, config: Config) -> None:
        self.config = config
        self.job, n = world(), config.topology.clients
        if self.job.size != n:
            have = "it was started without mpiexec" if self.job.size == 1 else f"this job has {self.job.size}"
            raise UserError(
                f"engine mpi needs a rank for each of {n} clients, and {have}: "
                f"mpiexec -n {n} swiftfl run ... --engine mpi"
            )
        if config.engine.live.restart_lost:
            raise UserError("--restart-lost needs engine local: MPI cannot start a rank again")
        self.leads = self.job.rank == 0
        self._every = config.engine.live.evaluate_seconds
        self._evaluated: Row | None = None

    def agree(self, prepare: Callable[[], Row]) -> Row:
        """What the first rank prepares; an error of its own fails everywhere, and is reported once."""
        answer: Row = {}
        if self.leads:
            try:
                answer = {"prepared": prepare()}
            except UserError as error:
                answer = {"error": str(error)}
        answer = self.job.tell(answer)
        if "error" in answer:
            raise UserError(answer["error"])
        prepared: Row = answer["prepared"]
        return prepared

    def new(self, parts: Parts, folder: Path | None) -> Engine:
        clients = None if folder is None else folder / CLIENTS
        if clients is not None and self.leads:
            keep_configuration(clients, self.config)
        self._announce(folder)
        return self._make(parts, clients, None)

    def _make(self, parts: Parts, clients: Path | None, point: ResumePoint | None) -> Engine:
        plan = facts_plan(self.config, parts.setup, None if clients is None else clients.parent)
        self.engine = MpiEngine(parts.setup, self.job, clients, live_options(self.config), point, plan)
        workload, some = parts.setup.workload, self.config.evaluation.clients
        self.engine.evaluate_with(lambda models, epochs: assess(workload, models, some, epochs))
        return self.engine

    def resumed(self, parts: Parts, folder: RunFolder, past: Past, from_start: bool) -> Engine:
        clients = folder.path / CLIENTS

        def find() -> Row:
            check_configuration(folder, self.config)
            return asdict(find_resume_point(clients, parts.setup, past.elapsed, from_start))

        point = ResumePoint.unpack(self.agree(find))  # by one rank: others may write when a late one reads
        for note in point.notes if self.leads else ():
            notice(note)
        self._announce(folder.path)
        return self._make(parts, clients, point)

    def _announce(self, folder: Path | None) -> None:
        """How to go on, before it is needed: a launcher that is stopped lets nobody speak."""
        if folder is not None and self.leads:
            notice(f"if this is stopped: {self.command(folder)}")

    def start(self) -> None:
        self.engine.start()
        self._due = time.monotonic() + self._every

    def advance(self, stop: StopRequest) -> bool:
        """Models are asked for every so often, and evaluated elsewhere while this rank goes on training."""
        engine = self.engine
        if engine.wait(_LOOK):
            return not engine.stopped
        self._evaluated = engine.take_evaluation()
        if self._evaluated is not None:
            return True
        if self.leads and time.monotonic() >= self._due and engine.status.started:
            engine.request_evaluation()
            self._due = time.monotonic() + self._every
        return False

    def measured(self) -> Measurement | None:
        found, self._evaluated = self._evaluated, None
        if found is None:
            return None
        about = {name: found.pop(name) for name in ("iteration", "time", "epochs")}
        return measurement_of(self.engine, about["iteration"], about["time"], about["epochs"], found)

    def finished(self) -> bool:
        atexit.register(self._leave)  # when the result has been shown
        return self.engine.has_result

    def _leave(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self.engine.leave()

    def command(self, path: Path) -> str:
        return resume_command(self.config, path.resolve(), f"mpiexec -n {self.config.topology.clients} ")
