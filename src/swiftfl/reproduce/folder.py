"""The folder of one experiment: which runs belong to it, and what is known before they start."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import Any

from swiftfl.errors import UserError
from swiftfl.experiment.build import build_topology
from swiftfl.experiment.campaign import PlannedRun
from swiftfl.files import write_atomically, write_json
from swiftfl.record import RunFolder, versions
from swiftfl.reproduce.plan import Experiment, planned_steps

_MPI_LINE = (
    "test -e {run}/summary.json || if test -e {run}/config.json; "
    "then ${{MPIEXEC:-mpiexec}} -n {n} swiftfl resume {run}; "
    "else ${{MPIEXEC:-mpiexec}} -n {n} swiftfl run {config} --out {run}; fi"
)


def make_folder(folder: Path) -> None:
    """Make the folder, if it can be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror or error}") from None


def check_fidelity(out: Path, fidelity: str) -> None:
    """Two fidelities never share a folder: its report would compare what cannot be compared."""
    for file in sorted(out.glob("*/experiment.json")):
        described = RunFolder(file.parent).read_json(file.name)
        there = described.get("fidelity", "paper")
        if there != fidelity and "runs" in described:  # others measure problems of their own
            raise UserError(
                f"{file.parent} holds results with fidelity {there}, not {fidelity}: choose another --out"
            )


def run_path(group: str, method: str, seed: int) -> str:
    return f"runs/{group}/{method}/seed{seed}"


def planned_runs(experiment: Experiment, seeds: int, folder: Path) -> list[PlannedRun]:
    """Every trained case with every seed; the first seed of everything comes first."""
    return [
        PlannedRun(
            folder / run_path(case.group, case.method, seed),
            case.config.with_changes({"seed": seed}),
            planned_steps(case.config),
        )
        for seed in range(seeds)
        for case in experiment.cases
        if case.trained
    ]


def describe(experiment: Experiment, seeds: int, folder: Path, more: dict[str, Any]) -> None:
    """Write `experiment.json`; `more` holds the scale, engine, hardware, fidelity and command."""
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
    write_json(
        folder / "experiment.json",
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


# --- MPI, which starts its own processes ------------------------------------------------------------------


def write_mpi_script(runs: list[PlannedRun], folder: Path) -> Path:
    """Write `mpi.sh`, one `mpiexec` per run, and in `mpi/` each run's configuration; paths are absolute."""
    folder = folder.resolve()
    (folder / "mpi").mkdir(exist_ok=True)
    lines = ["#!/bin/sh", "# One run after the other; started again, it goes on. MPIEXEC may hold options."]
    for one in runs:
        run = one.path.resolve()
        name = "-".join(run.relative_to(folder / "runs").parts) + ".json"
        write_json(folder / "mpi" / name, one.config.model_dump(mode="json"))
        words = {"run": shlex.quote(str(run)), "config": shlex.quote(str(folder / "mpi" / name))}
        lines.append(_MPI_LINE.format(n=one.config.topology.clients, **words))
    script = folder / "mpi.sh"
    write_atomically(script, "\n".join(lines) + "\n")
    return script
