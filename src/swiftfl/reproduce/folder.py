"""The folder of one experiment: which runs belong to it, and what is known before they start."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from swiftfl.errors import UserError
from swiftfl.experiment.build import build_topology
from swiftfl.experiment.pool import Job
from swiftfl.record import RunFolder, versions
from swiftfl.reproduce.plan import Experiment
from swiftfl.reproduce.settings import planned_steps


def make(folder: Path) -> None:
    """The folder, if it can be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror or error}") from None


def run_path(group: str, method: str, seed: int) -> str:
    return f"runs/{group}/{method}/seed{seed}"


def jobs(experiment: Experiment, seeds: int, folder: Path) -> list[Job]:
    """Every trained case with every seed; the first seed of everything comes first."""
    return [
        Job(
            folder / run_path(case.group, case.method, seed),
            case.config.with_changes({"seed": seed}),
            planned_steps(case.config),
        )
        for seed in range(seeds)
        for case in experiment.cases
        if case.trained
    ]


def describe(experiment: Experiment, seeds: int, folder: Path, more: dict[str, Any]) -> None:
    """Write `experiment.json`; `more` holds the scale, engine, hardware and command."""
    runs = [
        {
            "group": case.group,
            "method": case.method,
            "seed": seed,
            "path": run_path(case.group, case.method, seed),
        }
        for seed in range(seeds)
        for case in experiment.cases
        if case.trained
    ]
    RunFolder(folder).write_json(
        "experiment.json",
        {
            "name": experiment.name,
            "title": experiment.title,
            **more,
            "seeds": list(range(seeds)),
            "versions": versions(),
            "groups": experiment.groups,
            "methods": experiment.methods,
            "runs": runs,
            "topologies": {group: _topology(experiment, group) for group in experiment.groups},
        },
    )


def _topology(experiment: Experiment, group: str) -> dict[str, Any]:
    config = next(case.config for case in experiment.cases if case.group == group)
    graph = build_topology(config.topology, config.seed)
    return {"name": config.topology.name, "clients": graph.n, "edges": graph.edges.tolist()}
