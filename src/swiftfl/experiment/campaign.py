"""A campaign: many runs, several at once, each in a folder of its own.

Runs that have finished are kept, and runs that were begun go on from their checkpoints. A run that fails is
reported and does not stop the others.
"""

from __future__ import annotations

import logging
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swiftfl.errors import UserError
from swiftfl.experiment.build import resolve
from swiftfl.experiment.config import Config, parse
from swiftfl.experiment.differences import difference
from swiftfl.experiment.given import Given
from swiftfl.experiment.measure import Measurement
from swiftfl.experiment.pool import Job, JobEvent, JobFailed, JobFinished, JobProgress, run_jobs
from swiftfl.experiment.run import Progress, resume, run
from swiftfl.experiment.worker import load
from swiftfl.lock import locked
from swiftfl.record import RunFolder

_log = logging.getLogger(__name__)

_SAVE_SECONDS = 60.0
_OBJECTS = "swiftfl.api.own_experiment:objects_of"
"""Finds the objects of an experiment of the user's own; by its name, as jobs are: it is a layer above."""
DIVERGED = "the run diverged: see its events.jsonl"


@dataclass(frozen=True)
class PlannedRun:
    """One run: its folder, its configuration, and about how many client steps it takes."""

    path: Path
    config: Config
    steps: int
    checkpoint_seconds: float = 30.0


@dataclass
class CampaignProgress:
    """How far a campaign is. `failed` has the reason of each failure, by run folder."""

    runs: int
    steps: int
    runs_done: int = 0
    steps_done: int = 0
    seconds_left: float | None = None
    failed: dict[str, str] = field(default_factory=dict)


def campaign(
    planned: Sequence[PlannedRun], workers: int, show: Callable[[CampaignProgress], None]
) -> CampaignProgress:
    """Run what has not finished, in this order, `workers` runs at a time; KeyboardInterrupt when stopped."""
    tracker = _Tracker(CampaignProgress(len(planned), sum(one.steps for one in planned)))
    left = [one for one in planned if not (finished(one) and tracker.count_finished(one))]
    tracker.start(left)
    jobs = [_job(one) for one in left]
    run_jobs(jobs, workers, tracker.note, lambda: show(tracker.update()))
    show(tracker.update())
    return tracker.progress


class _Tracker:
    """Counts runs and steps, and estimates the time that is left."""

    def __init__(self, progress: CampaignProgress) -> None:
        self.progress = progress
        self._runs: dict[str, PlannedRun] = {}
        self._running: dict[str, int] = {}
        self._settled = self._inherited = 0
        self._resumed: set[str] = set()
        self._began = time.monotonic()

    def count_finished(self, one: PlannedRun) -> bool:
        """Count a run that had finished before this campaign."""
        self._settle(one, has_diverged(one.path))
        return True

    def start(self, left: Sequence[PlannedRun]) -> None:
        self._runs = {str(one.path): one for one in left}
        self._resumed = {str(one.path) for one in left if begun(one.path)}
        self._inherited = self._settled
        self._began = time.monotonic()

    def note(self, event: JobEvent) -> None:
        name = event.job.name
        one = self._runs[name]
        if isinstance(event, JobProgress):
            if name in self._resumed:  # what it had done before is no measure of today's speed
                self._inherited += event.done
                self._resumed.discard(name)
            self._running[name] = event.done
            return
        self._running.pop(name, None)
        if isinstance(event, JobFinished):
            self._settle(one, event.result["diverged"])
            _log.info("%s has finished", name)
        elif isinstance(event, JobFailed):
            _log.info("%s failed: %s", name, event.reason)
            self.progress.failed[name] = event.reason
            self.progress.steps -= one.steps

    def _settle(self, one: PlannedRun, diverged: bool) -> None:
        self.progress.runs_done += 1
        self._settled += one.steps
        if diverged:
            self.progress.failed[str(one.path)] = DIVERGED

    def update(self) -> CampaignProgress:
        """The steps so far, and the time that the rest takes at the speed so far."""
        progress = self.progress
        progress.steps_done = self._settled + sum(self._running.values())
        computed = progress.steps_done - self._inherited
        if computed > 0:
            seconds = (time.monotonic() - self._began) / computed
            progress.seconds_left = seconds * max(0, progress.steps - progress.steps_done)
        return progress


def _job(one: PlannedRun) -> Job:
    arguments = {
        "path": str(one.path),
        "config": resolve(one.config).model_dump(mode="json"),
        "checkpoint_seconds": one.checkpoint_seconds,
    }
    return Job(str(one.path), f"{__name__}:run_planned", arguments)


def run_planned(
    report: Callable[[int], None], path: str, config: Mapping[str, Any], checkpoint_seconds: float
) -> dict[str, bool]:
    """In a worker process: run or resume one run; whether it diverged."""

    def progress(done: int, total: int, last: Measurement) -> None:
        report(done)

    folder = Path(path)
    if folder.is_dir():  # a worker of an earlier campaign that was killed may still be saving there
        with locked(folder, patience=_SAVE_SECONDS):
            pass
    run_or_resume(folder, parse(dict(config)), progress, checkpoint_seconds)
    return {"diverged": has_diverged(folder)}


def has_diverged(path: Path) -> bool:
    """Whether a run that has finished has no result: it stopped as diverged, or its loss is not finite."""
    summary = RunFolder(path).read_json("summary.json")
    loss = summary.get("loss")
    return bool(summary.get("diverged")) or loss is None or not math.isfinite(loss)


def run_or_resume(path: Path, config: Config, progress: Progress, checkpoint_seconds: float) -> None:
    """A run that has saved something goes on; one that has not starts anew, with the same result."""
    if (path / "summary.json").is_file():
        return
    given = objects_of(config)
    if begun(path):
        # The same run may find its data elsewhere this time; that its code is the same is checked.
        folder = RunFolder.open(path)
        sources = folder.read_object("config.json").get("sources", {})
        folder.write_json("config.json", {**config.model_dump(mode="json"), "sources": sources})
        resume(path, progress, checkpoint_seconds, given=given)
    else:
        shutil.rmtree(path, ignore_errors=True)
        run(config, path, progress, checkpoint_seconds, given=given)


def objects_of(config: Config) -> Given | None:
    """What an experiment of the user's own gave, if this configuration is of one."""
    return None if config.experiment is None else load(_OBJECTS)(config)


def begun(path: Path) -> bool:
    """Whether a run has saved something to go on from."""
    return RunFolder(path).has_saves()


def finished(planned: PlannedRun) -> bool:
    """Whether this very run is recorded already. A folder that holds anything else is refused."""
    path = planned.path
    if not (path / "config.json").is_file():
        if path.is_dir() and any(not entry.name.startswith(".") for entry in path.iterdir()):
            raise UserError(f"{path} is not a run folder: give another --out")
        return False
    there = parse(RunFolder(path).read_object("config.json"))
    changed = difference(there, planned.config)
    if changed is not None:
        raise UserError(f"{path} holds a run with other settings ({changed}): give another --out")
    return (path / "summary.json").is_file()
