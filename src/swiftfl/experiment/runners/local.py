"""Runs with one process per client on this machine: they run by themselves and save by themselves."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable
from pathlib import Path

from swiftfl.engines.engine import Engine
from swiftfl.engines.live.local.engine import Local
from swiftfl.engines.live.options import LiveOptions
from swiftfl.engines.live.resume import ResumePoint, find_resume_point
from swiftfl.experiment.build import Parts
from swiftfl.experiment.config import Config, parse
from swiftfl.experiment.differences import refuse_changes
from swiftfl.experiment.measure import Measurement
from swiftfl.experiment.runners.runner import LivePace, Past, Row
from swiftfl.experiment.signals import StopRequest
from swiftfl.files import write_json
from swiftfl.record import RunFolder
from swiftfl.record.folder import CLIENTS
from swiftfl.transports.registry import transport_between_processes

_SHARE = 0.05  # of the time goes into evaluations, at most
_log = logging.getLogger(__name__)


class LocalRunner:
    """A run whose clients are processes of this machine."""

    leads = True

    def __init__(self, config: Config) -> None:
        self.config = config
        self.transport = transport_between_processes(config.engine.live.transport)

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

    def _make(self, parts: Parts, clients: Path | None, point: ResumePoint | None) -> Local:
        return Local(parts.setup, clients, live_options(self.config), point, self.transport)

    def keep(self, rows: list[Row], events: list[Row]) -> tuple[list[Row], list[Row]]:
        return rows, events

    def start(self) -> None:
        self.engine.start()
        self._pace = LivePace(self.config, _SHARE)

    def advance(self, stop: StopRequest) -> bool:
        return self._pace.wait(self.engine)

    def measured(self) -> Measurement | None:
        return None

    def ask_to_stop(self) -> None:
        self.engine.stop()

    def stopped(self, stop: StopRequest) -> bool:
        return self.engine.over and self.engine.stopped

    def end(self) -> None:
        self.engine.stop()
        while not self.engine.wait(1.0):  # clients that do not stop are killed
            pass

    def save(self, folder: RunFolder, config: Row) -> bool:
        return False

    def figures(self, parts: Parts) -> Row:
        return {}

    def finished(self) -> bool:
        return True

    def command(self, path: Path) -> str:
        return f"swiftfl resume {shlex.quote(str(path))}"


def live_options(config: Config) -> LiveOptions:
    live = config.engine.live
    return LiveOptions(live.save_seconds, live.save_steps, live.record, live.restart_lost)


# What clients saved belongs to one configuration, a copy of which is kept beside it.


def keep_configuration(clients: Path, config: Config) -> None:
    clients.mkdir(parents=True, exist_ok=True)
    write_json(clients / "config.json", config.model_dump(mode="json"))


def check_configuration(folder: RunFolder, config: Config) -> None:
    """Refuse to go on with another configuration than that of the saves."""
    if (folder.path / CLIENTS / "config.json").is_file():
        recorded = parse(folder.read_json(f"{CLIENTS}/config.json"))
        refuse_changes(recorded, config, folder.path / "config.json")
