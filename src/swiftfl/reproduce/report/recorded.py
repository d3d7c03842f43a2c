"""What `swiftfl reproduce` has recorded in a folder, as far as it has come."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from swiftfl.errors import UserError
from swiftfl.files import plain_name
from swiftfl.record import RunFolder

ORDER = ("baseline", "noniid", "slowdown", "clients", "topologies")
MEASURED = ("convergence", "rivals", "better", "influence", "shift")
"""Experiments that are measured in parts, with results.json; in the order of the page."""
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Run:
    """One run of one method with one seed; `finished` is false until it has ended."""

    group: str
    method: str
    seed: int
    path: Path

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """One row per evaluation, up to the first whose loss is not finite."""
        kept = []
        for row in RunFolder(self.path).read_rows("metrics.jsonl"):
            if not number(row.get("loss")):
                break
            kept.append(row)
        return kept

    @cached_property
    def diverged(self) -> bool:
        """Whether it has ended without a finite loss: there is no result to compare then."""
        summary = self.summary
        if summary.get("diverged") or (summary and not number(summary.get("loss", 0.0))):
            return True
        rows = RunFolder(self.path).read_rows("metrics.jsonl")
        return bool(rows) and not number(rows[-1].get("loss"))

    @property
    def has_curve(self) -> bool:
        """Whether it was evaluated more than once, so that there is a time at which it reached a loss."""
        return len(self.rows) > 1

    @cached_property
    def summary(self) -> dict[str, Any]:
        return _json(self.path / "summary.json")

    @property
    def finished(self) -> bool:
        return bool(self.summary)

    @cached_property
    def config(self) -> dict[str, Any]:
        return _json(self.path / "config.json")

    @cached_property
    def partition(self) -> dict[str, Any]:
        return _json(self.path / "partition.json")


@dataclass(frozen=True)
class RecordedExperiment:
    """One experiment. What has not been recorded is empty."""

    folder: Path
    about: dict[str, Any] = field(default_factory=dict)
    runs: tuple[Run, ...] = ()

    @property
    def name(self) -> str:
        return str(self.about.get("name", self.folder.name))

    @property
    def title(self) -> str:
        return str(self.about.get("title", self.name))

    @property
    def groups(self) -> dict[str, str]:
        return dict(self.about.get("groups", {}))

    @property
    def methods(self) -> dict[str, str]:
        return dict(self.about.get("methods", {}))

    @property
    def seconds(self) -> str:
        """Whose seconds the runs have recorded."""
        return "virtual seconds" if self.about.get("engine", "virtual") == "virtual" else "seconds"

    def of(self, group: str, method: str) -> list[Run]:
        """The finished runs of one case, by seed; those that diverged are not among them."""
        return [run for run in self._finished(group, method) if run.rows and not run.diverged]

    def diverged(self, group: str, method: str) -> list[Run]:
        """The runs of one case that ended without a finite loss, by seed."""
        return [run for run in self._finished(group, method) if run.diverged]

    def _finished(self, group: str, method: str) -> list[Run]:
        here = [run for run in self.runs if (run.group, run.method) == (group, method) and run.finished]
        return sorted(here, key=lambda run: run.seed)

    @cached_property
    def predicted(self) -> dict[str, dict[str, dict[str, float]]]:
        return _json(self.folder / "predicted.json")

    @cached_property
    def timelines(self) -> dict[str, dict[str, Any]]:
        return _json(self.folder / "timelines.json")

    @cached_property
    def sensitivity(self) -> dict[str, Any]:
        return _json(self.folder / "sensitivity.json")

    @cached_property
    def live(self) -> dict[str, Any]:
        return _json(self.folder / "live.json")

    def times(self, group: str, method: str) -> dict[str, float]:
        """The predicted seconds per epoch of one case: three parts, or nothing."""
        return dict(self.predicted.get(group, {}).get(method, {}))

    def missing(self) -> list[str]:
        """What is not there, one sentence for the reader each."""
        said = []
        unfinished = [run for run in self.runs if not run.finished]
        if unfinished:
            said.append(
                f"{len(unfinished)} of {len(self.runs)} runs have not finished: their results are left out."
            )
        diverged = [f"{r.group}, {r.method}, seed {r.seed}" for r in self.runs if r.finished and r.diverged]
        if diverged:
            said.append(f"Diverged, and left out of tables and curves: {'; '.join(diverged)}.")
        once = [run for run in self.runs if run.finished and not run.diverged and not run.has_curve]
        if once:
            said.append(
                f"{len(once)} of {len(self.runs)} runs were evaluated only once: they have a final loss, but "
                "no curve and no time to a loss."
            )
        files = {"predicted.json": "predicted times", "timelines.json": "timelines"}
        if self.name == "baseline":
            files |= {"sensitivity.json": "sensitivity", "live.json": "times measured on this machine"}
        said += [f"No {what}: {file} is missing." for file, what in files.items() if not self._has(file)]
        return said

    def _has(self, file: str) -> bool:
        return (self.folder / file).is_file()


def experiments(out: Path) -> list[RecordedExperiment]:
    """The experiments that train, of a folder, in the paper's order."""
    if not out.is_dir():
        raise UserError(f"{out} is not a folder: nothing has been reproduced there")
    found = {
        file.parent.name: recorded(file.parent)
        for file in sorted(out.glob("*/experiment.json"))
        if file.parent.name not in MEASURED
    }
    names = [name for name in ORDER if name in found] + sorted(set(found) - set(ORDER))
    return [found[name] for name in names]


def recorded(folder: Path) -> RecordedExperiment:
    """One experiment. Its names become names of files, so they are checked."""
    file = folder / "experiment.json"
    about = _json(file)
    try:
        trees = [about.get(name, {}) for name in ("groups", "methods", "topologies")]
        for name in (about.get("name", folder.name), *_keys(*trees)):
            plain_name(str(name), str(file))
        runs = tuple(_run(run, folder) for run in about.get("runs", []))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"cannot read {file}: {type(error).__name__}: {error}") from None
    found = RecordedExperiment(folder, about, runs)
    for name in _keys(found.timelines, found.predicted, found.sensitivity):
        plain_name(name, str(folder))
    return found


def _keys(*trees: Mapping[str, Any]) -> list[str]:
    return [str(key) for tree in trees for key in tree]


def _run(run: Mapping[str, Any], folder: Path) -> Run:
    path = Path(str(run["path"]))
    if path.is_absolute() or ".." in path.parts:
        raise UserError(f"{folder / 'experiment.json'}: the run {str(path)!r} is not inside {folder}")
    return Run(str(run["group"]), str(run["method"]), int(run["seed"]), folder / path)


def number(value: object) -> bool:
    """Whether it is a finite number."""
    return isinstance(value, int | float) and math.isfinite(value)


def _json(file: Path) -> dict[str, Any]:
    """The object of a file, empty if there is no such file."""
    if not file.is_file():
        return {}
    try:
        value = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {file}: {error}") from None
    if not isinstance(value, dict):
        raise UserError(f"cannot read {file}: it is not an object")
    return value
