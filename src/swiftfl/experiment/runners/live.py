"""What runs with real clients have in common: they save by themselves, and stop when they are asked to."""

from __future__ import annotations

from pathlib import Path

from swiftfl.engines.engine import LiveEngine
from swiftfl.engines.live.options import LiveOptions
from swiftfl.experiment.build import Parts
from swiftfl.experiment.config import Config, parse
from swiftfl.experiment.differences import refuse_changes
from swiftfl.experiment.runners.runner import Row
from swiftfl.files import write_json
from swiftfl.record import RunFolder
from swiftfl.record.folder import CLIENTS
from swiftfl.signals import StopRequest


class LiveRunner:
    """A run that goes on by itself; runners add how it is made and measured."""

    engine: LiveEngine

    def keep(self, rows: list[Row], events: list[Row]) -> tuple[list[Row], list[Row]]:
        return rows, events

    def ask_to_stop(self) -> None:
        self.engine.stop()

    def stopped(self, stop: StopRequest) -> bool:
        return self.engine.over and self.engine.stopped

    def end(self) -> None:
        self.engine.stop()
        while not self.engine.wait(1.0):  # clients that do not stop are killed, or left alone
            pass

    def save(self, folder: RunFolder, config: Row) -> bool:
        return False

    def figures(self, parts: Parts) -> Row:
        return {}


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
