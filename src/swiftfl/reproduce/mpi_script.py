"""An experiment under MPI: a script with one `mpiexec` per run, which skips what is there already."""

from __future__ import annotations

import shlex
from pathlib import Path

from swiftfl.experiment.pool import Job
from swiftfl.record import RunFolder

_LINE = (
    "test -e {run}/summary.json || if test -e {run}/config.json; "
    "then ${{MPIEXEC:-mpiexec}} -n {n} swiftfl resume {run}; "
    "else ${{MPIEXEC:-mpiexec}} -n {n} swiftfl run {config} --out {run}; fi"
)


def write_script(todo: list[Job], folder: Path) -> Path:
    """`mpi.sh` and, in `mpi/`, the configuration of each run; paths are absolute."""
    folder = folder.resolve()
    (folder / "mpi").mkdir(exist_ok=True)
    lines = ["#!/bin/sh", "# One run after the other; started again, it goes on. MPIEXEC may hold options."]
    for job in todo:
        run = job.path.resolve()
        name = "-".join(run.relative_to(folder / "runs").parts) + ".json"
        RunFolder(folder / "mpi").write_json(name, job.config.model_dump(mode="json"))
        words = {"run": shlex.quote(str(run)), "config": shlex.quote(str(folder / "mpi" / name))}
        lines.append(_LINE.format(n=job.config.topology.clients, **words))
    script = folder / "mpi.sh"
    script.write_text("\n".join(lines) + "\n")
    return script
