"""Runs under MPI: every rank builds the run and has one client, and the first rank leads.

mpiexec -n 16 swiftfl run digits --engine mpi
"""

from __future__ import annotations

import atexit
import logging
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from swiftfl.engines.engine import Engine
from swiftfl.engines.live.mpi.engine import Mpi
from swiftfl.engines.live.resume import find_resume_point
from swiftfl.errors import UserError
from swiftfl.experiment.build import Parts
from swiftfl.experiment.config import Config
from swiftfl.experiment.notices import notice
from swiftfl.experiment.runners.live_view import MpiView
from swiftfl.experiment.runners.local import check_configuration, keep_configuration, live_options
from swiftfl.experiment.runners.runner import Past, Row
from swiftfl.experiment.signals import StopRequest
from swiftfl.record import RunFolder
from swiftfl.record.folder import CLIENTS
from swiftfl.transports.mpi import world

_LOOK = 0.1
_log = logging.getLogger(__name__)


class MpiRunner:
    """This rank's part in a run."""

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
        self.engine = MpiView(Mpi(parts.setup, self.job, clients, live_options(self.config)))
        return self.engine

    def resumed(self, parts: Parts, folder: RunFolder, past: Past, from_start: bool) -> Engine:
        check_configuration(folder, self.config)
        clients = folder.path / CLIENTS
        point = find_resume_point(clients, parts.setup, past.elapsed, from_start)
        self.agree(dict)  # nobody begins, and saves, before everybody has read
        self._announce(folder.path)
        self.engine = MpiView(Mpi(parts.setup, self.job, clients, live_options(self.config), point))
        return self.engine

    def _announce(self, folder: Path | None) -> None:
        """How to go on, before it is needed: a launcher that is stopped lets nobody speak."""
        if folder is not None and self.leads:
            notice(f"if this is stopped: {self.command(folder)}")

    def keep(self, rows: list[Row], events: list[Row]) -> tuple[list[Row], list[Row]]:
        return rows, events

    def start(self) -> None:
        self.engine.start()

    def advance(self, stop: StopRequest) -> bool:
        return self.engine.wait(_LOOK) and not self.engine.stopped

    def ask_to_stop(self) -> None:
        self.engine.stop()

    def stopped(self, stop: StopRequest) -> bool:
        return self.engine.over and self.engine.stopped

    def end(self) -> None:
        self.engine.stop()
        while not self.engine.wait(1.0):
            pass

    def save(self, folder: RunFolder, config: Row) -> bool:
        return False

    def figures(self, parts: Parts) -> Row:
        return {}

    def finished(self) -> bool:
        atexit.register(self._leave)  # when the result has been shown
        return self.engine.has_result

    def _leave(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self.engine.inner.leave()

    def command(self, path: Path) -> str:
        return f"mpiexec -n {self.config.topology.clients} swiftfl resume {shlex.quote(str(path.resolve()))}"
