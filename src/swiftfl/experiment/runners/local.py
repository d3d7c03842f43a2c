"""Runs with one process per client on this machine: they run by themselves and save by themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from swiftfl.engines.engine import Engine
from swiftfl.engines.live.local.engine import LocalEngine
from swiftfl.engines.live.local.spawned import Remade
from swiftfl.engines.live.resume import ResumePoint, find_resume_point
from swiftfl.experiment.build import Parts
from swiftfl.experiment.config import Config
from swiftfl.experiment.facts import facts_plan
from swiftfl.experiment.measure import Measurement
from swiftfl.experiment.notices import notice
from swiftfl.experiment.runners.live import LiveRunner, check_configuration, keep_configuration, live_options
from swiftfl.experiment.runners.runner import LivePace, Past, Row, resume_command
from swiftfl.experiment.stages import stages_over
from swiftfl.experiment.starting import how_to_start_here, remaking
from swiftfl.record import RunFolder
from swiftfl.record.folder import CLIENTS
from swiftfl.signals import StopRequest
from swiftfl.transports.registry import transport_between_processes

_SHARE = 0.05  # of the time goes into evaluations, at most


class LocalRunner(LiveRunner):
    """A run whose clients are processes of this machine."""

    leads = True

    def __init__(self, config: Config) -> None:
        self.config = config
        self.transport = transport_between_processes(config.engine.live.transport)
        start, told = how_to_start_here(config)
        self._remade = Remade(*remaking(config)) if start == "spawn" else None
        if told:
            notice(told)

    def agree(self, prepare: Callable[[], Row]) -> Row:
        return prepare()

    def new(self, parts: Parts, folder: Path | None) -> Engine:
        clients = None if folder is None else folder / CLIENTS
        if clients is not None:
            keep_configuration(clients, self.config)
        self.engine = self._make(parts, clients, None)
        return self.engine

    def resumed(self, parts: Parts, folder: RunFolder, past: Past, from_start: bool) -> Engine:
        check_configuration(folder, self.config)
        clients = folder.path / CLIENTS
        point = find_resume_point(clients, parts.setup, past.elapsed, from_start)
        self.engine = self._make(parts, clients, point)
        return self.engine

    def _make(self, parts: Parts, clients: Path | None, point: ResumePoint | None) -> LocalEngine:
        plan = facts_plan(self.config, parts.setup, None if clients is None else clients.parent)
        options = live_options(self.config)
        return LocalEngine(parts.setup, clients, options, point, self.transport, plan, self._remade)

    def start(self) -> None:
        stages_over()  # whose timer is a thread, and the engine forks
        self.engine.start()
        self._pace = LivePace(self.config, _SHARE)

    def advance(self, stop: StopRequest) -> bool:
        return self._pace.wait(self.engine)

    def measured(self) -> Measurement | None:
        return None

    def finished(self) -> bool:
        return True

    def command(self, path: Path) -> str:
        return resume_command(self.config, path)
