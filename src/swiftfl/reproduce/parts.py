"""An experiment in parts: each is a job of its own, has a file of its own, and is never computed twice."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swiftfl.errors import UserError
from swiftfl.experiment.pool import Job, JobEvent, JobFailed, JobFinished, run_jobs
from swiftfl.experiment.worker import load
from swiftfl.files import write_json

_log = logging.getLogger(__name__)

Parameters = dict[str, Any]
Result = dict[str, Any]
Progress = Callable[[str, int, int], None]
FORMAT = 1
"""To be raised when the same parameters come to mean another computation."""


@dataclass(frozen=True)
class Part:
    """`run(parameters)` gives the result; both are plain JSON. `run` is a function of a module."""

    name: str
    run: Callable[[Parameters], Result]
    parameters: Parameters

    def key(self) -> Parameters:
        """What the result depends on, as a file gives it back."""
        stored: Parameters = json.loads(json.dumps({**self.parameters, "format": FORMAT}))
        return stored


def stored(part: Part, folder: Path) -> Result | None:
    """The result of an earlier call, if it is there, complete, and of the same parameters."""
    try:
        found = json.loads((folder / f"{part.name}.json").read_text())
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or found.get("parameters") != part.key():
        return None
    result: Result = found["result"]
    return result


def run_parts(parts: Sequence[Part], folder: Path, progress: Progress, workers: int) -> list[Result]:
    """Every part's result, in order; what is not stored yet is computed, `workers` parts at once.

    If parts fail, the others are computed and kept nevertheless; then the failures are a UserError.
    """
    results = {part.name: stored(part, folder) for part in parts}
    by_name = {part.name: part for part in parts}
    todo = [name for name, result in results.items() if result is None]
    failed: dict[str, str] = {}

    def note(event: JobEvent) -> None:
        name = event.job.name
        if isinstance(event, JobFailed):
            _log.info("part %s failed: %s", name, event.reason)
            failed[name] = event.reason
        elif isinstance(event, JobFinished):
            kept = {"parameters": by_name[name].key(), "result": event.result}
            write_json(folder / f"{name}.json", kept)
            results[name] = event.result
            _log.debug("part %s is written", name)
            progress(name, sum(result is not None for result in results.values()), len(parts))

    progress("", len(parts) - len(todo), len(parts))
    if todo:
        folder.mkdir(parents=True, exist_ok=True)
    run_jobs([_job(by_name[name]) for name in todo], workers, note)
    if failed:
        name, reason = next(iter(failed.items()))
        raise UserError(f"{len(failed)} of {len(parts)} parts failed; the first, {name}: {reason}")
    return [result for result in results.values() if result is not None]


def _job(part: Part) -> Job:
    function = f"{part.run.__module__}:{part.run.__name__}"
    arguments = {"function": function, "parameters": part.parameters}
    return Job(part.name, f"{__name__}:compute", arguments)


def compute(report: Callable[[int], None], function: str, parameters: Parameters) -> Any:
    """In a worker process: the result of one part (numbers that are not finite arrive as None)."""
    return load(function)(parameters)


def check_scale_of(folder: Path, scale: str) -> None:
    """Refuse a folder that holds the measurements of another scale, which would be overwritten."""
    for name in ("experiment.json", "results.json"):
        try:
            there = json.loads((folder / name).read_text())["scale"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if there != scale:
            raise UserError(f"{folder} holds the measurements of scale {there}: give another --out")
