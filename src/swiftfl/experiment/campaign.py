"""Many runs, several at once, each in its own folder: what has finished is kept, what was begun goes on.

Each worker is a fresh process with one thread (`experiment/worker.py`), so that a run computes the same
whichever others there are. A run that fails is told and does not stop the others.
"""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from swiftfl.errors import UserError
from swiftfl.experiment.build import resolve
from swiftfl.experiment.config import Config, parse
from swiftfl.experiment.pool import DIVERGED, CampaignProgress, Job, JobPool
from swiftfl.record import RunFolder


def campaign(jobs: Sequence[Job], workers: int, show: Callable[[CampaignProgress], None]) -> CampaignProgress:
    """Run what has not finished, in this order, so many at a time; KeyboardInterrupt when stopped."""
    progress = CampaignProgress(len(jobs), sum(job.steps for job in jobs))
    left = []
    for job in jobs:
        if not finished(job):
            left.append(job)
            continue
        progress.runs_done += 1
        progress.steps_done += job.steps
        if RunFolder(job.path).read_json("summary.json")["loss"] is None:
            progress.failed[str(job.path)] = DIVERGED
    if left:
        with _stopping() as stopped:
            JobPool(left, progress, show, stopped).work(min(workers, len(left)))
    show(progress)
    return progress


def finished(job: Job) -> bool:
    """Whether this very run is recorded already; another one in its place is never touched."""
    if not (job.path / "config.json").is_file():
        if job.path.is_dir() and any(not entry.name.startswith(".") for entry in job.path.iterdir()):
            raise UserError(f"{job.path} is not a run folder: give another --out")
        return False
    there = parse(RunFolder(job.path).read_json("config.json"))
    if _essence(there) != _essence(job.config):
        difference = _difference(there, job.config)
        raise UserError(f"{job.path} holds a run with other settings ({difference}): give another --out")
    return (job.path / "summary.json").is_file()


def _essence(config: Config) -> dict[str, Any]:
    """What decides a result: not where the data lies."""
    return resolve(config).with_changes({"data.folder": None}).model_dump(mode="json")


def _difference(there: Config, wanted: Config) -> str:
    """The first setting that differs, by its dotted name."""

    def search(a: Any, b: Any, name: str) -> str | None:
        if isinstance(a, dict) and isinstance(b, dict):
            both = (search(a.get(key), b.get(key), f"{name}.{key}") for key in {**a, **b})
            return next((found for found in both if found is not None), None)
        return None if a == b else f"{name[1:]} {json.dumps(a)}, not {json.dumps(b)}"

    return search(_essence(there), _essence(wanted), "") or "none"


@contextlib.contextmanager
def _stopping() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM ask for a stop; a second one does not wait for it."""
    asked: list[int] = []
    numbers: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}

    def ask(number: int, frame: object) -> None:
        asked.append(number)
        signal.signal(number, before[number])

    for number in numbers:
        if before[number] != signal.SIG_IGN:
            signal.signal(number, ask)
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
