"""Runs in virtual time and of the paper's random draw: one process, moved on step by step."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from swiftfl.engines.engine import Engine
from swiftfl.engines.simulation import checkpoint
from swiftfl.engines.simulation.event_log import EVENTS
from swiftfl.errors import UserError
from swiftfl.experiment.build import Parts
from swiftfl.experiment.config import Config, parse
from swiftfl.experiment.differences import refuse_changes
from swiftfl.experiment.measure import Measurement
from swiftfl.experiment.notices import notice
from swiftfl.experiment.runners.runner import Past, Row, resume_command
from swiftfl.experiment.stages import stage
from swiftfl.record import RunFolder, SavedCheckpoint
from swiftfl.signals import StopRequest

_STEPS_BETWEEN_LOOKS = 16
_LONGEST = 0.5  # seconds without a look at the clock and at signals, as far as gradients allow
_log = logging.getLogger(__name__)


class SimulatedRunner:
    """A run in this process."""

    leads = True

    def __init__(self, config: Config) -> None:
        self.config = config
        self._restored = False

    def agree(self, prepare: Callable[[], Row]) -> Row:
        return prepare()

    def new(self, parts: Parts, folder: Path | None) -> Engine:
        stage(f"making the first models of {parts.topology.n:,} clients")
        self.engine = parts.engine(self.config.engine.name)
        self._every = evaluation_interval(self.config, parts)
        return self.engine

    def resumed(self, parts: Parts, folder: RunFolder, past: Past, from_start: bool) -> Engine:
        engine = self.new(parts, folder.path)
        saved = self._saved(folder, from_start)
        if saved is None:
            notice(f"{folder.path} has no checkpoint: the run starts from its beginning")
            return engine
        for problem in saved.passed_over:
            notice(f"{problem}; the run goes on from the checkpoint before it")
        refuse_changes(parse(saved.config), self.config, folder.path / "config.json")
        checkpoint.restore(self.engine, checkpoint.Checkpoint(saved.tree, saved.arrays))
        self._restored = True
        return engine

    @staticmethod
    def _saved(folder: RunFolder, from_start: bool) -> SavedCheckpoint | None:
        try:
            return folder.checkpoints.read()
        except UserError as error:
            if not from_start:
                raise
            _log.warning("%s", error)
            folder.checkpoints.remove()
            return None

    def keep(self, rows: list[Row], events: list[Row]) -> tuple[list[Row], list[Row]]:
        """Without what comes after the checkpoint: it will happen again."""
        if not self._restored:
            return [], _until(0, events)
        there = self.engine.iteration
        return [row for row in rows if row.get("iteration", 0) <= there], _until(self.engine.logged, events)

    def start(self) -> None:
        if not self._restored:
            stage("starting the engine")
            self.engine.start()

    def advance(self, stop: StopRequest) -> bool:
        engine, every, began = self.engine, self._every, time.monotonic()
        target = engine.iteration + every - engine.iteration % every
        while engine.iteration < target and not engine.over and not stop():
            engine.advance(min(_STEPS_BETWEEN_LOOKS, target - engine.iteration), _LONGEST)
            if time.monotonic() - began > _LONGEST:
                break
        return engine.over or engine.iteration == target

    def measured(self) -> Measurement | None:
        return None

    def ask_to_stop(self) -> None:
        """The loop sees it between two events, where the run can be saved."""

    def stopped(self, stop: StopRequest) -> bool:
        return stop() and not self.engine.over

    def end(self) -> None:
        """Nothing moves by itself."""

    def save(self, folder: RunFolder, config: Row) -> bool:
        saved = checkpoint.save(self.engine)
        folder.checkpoints.write(saved.tree, saved.arrays, config)
        return True

    def figures(self, parts: Parts) -> Row:
        return {"gradients": parts.workload.choices()}

    def finished(self) -> bool:
        return True

    def command(self, path: Path) -> str:
        return resume_command(self.config, path)


def _until(logged: int, events: list[Row]) -> list[Row]:
    """The events without what the engine reported after the first `logged` ones."""
    kept = []
    for event in events:
        if event["event"] in EVENTS:
            logged -= 1
        if event["event"] not in EVENTS or logged >= 0:
            kept.append(event)
    return kept


def evaluation_interval(config: Config, parts: Parts) -> int:
    """In client steps: what all clients together take per epoch, times the epochs between evaluations."""
    end = total_steps(parts)
    wanted = sum(batches.steps_per_epoch for batches in parts.setup.batches) * config.evaluation.every_epochs
    return end if wanted >= end else max(1, round(wanted))


def total_steps(parts: Parts) -> int:
    """After how many client steps the run is over."""
    setup = parts.setup
    ends = [setup.iterations] if setup.iterations is not None else []
    if setup.epochs is not None:
        ends.append(setup.epochs * sum(batches.steps_per_epoch for batches in setup.batches))
    return min(ends)
