"""`swiftfl sweep`: every combination of some values, each with several seeds, several runs at once."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from swiftfl.cli.configuration import changed, configuration
from swiftfl.cli.flag_options import with_flags
from swiftfl.cli.flags import Changes, Typed, by_name, collect
from swiftfl.cli.names import Imports
from swiftfl.cli.screen import Interrupted, default_folder, print_table
from swiftfl.errors import UserError

if TYPE_CHECKING:
    from swiftfl.experiment.campaign import PlannedRun
    from swiftfl.experiment.config import Config
    from swiftfl.experiment.sweep import Combination

FAILED = 1
_PATIENCE = 60.0  # seconds for another task that writes the table


@with_flags
def sweep(
    recipe: Annotated[
        str, typer.Argument(help="As for run: {recipes}, a file, or a run folder.", show_default=False)
    ],
    grid: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=A,B,...", help="A setting or option, and its values; may be given again."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs per combination, each with the next seed.")] = 1,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Runs at once (default: one per core); each computes in its share of the cores.",
            show_default=False,
        ),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of all runs.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The sweep's folder (default: sweeps/RECIPE-DATE)."),
    ] = None,
    imports: Imports = None,
    **flags: object,
) -> None:
    """Run every combination of some values. The same command with the same --out goes on.

    swiftfl sweep my.yaml --grid lr=0.1,0.05 --seeds 3

    sbatch --array=0-15 --wrap "swiftfl sweep my.yaml --grid clients=8,16 --seeds 8 --out sweeps/b"
    """
    from swiftfl.experiment.campaign import finished
    from swiftfl.experiment.sweep import SWEEP, cells, make_folder, planned_runs, share
    from swiftfl.files import write_json

    base = changed(configuration(recipe), *collect({**flags, "workers": None}, settings or []), imports)
    axes = _axes(grid or [])
    chosen = cells(axes, lambda values: _configured(base, values))
    folder = out or _default_folder(recipe)
    planned = planned_runs(chosen, seeds, folder)
    mine = share(planned, os.environ)
    for one in mine:
        finished(one)
    make_folder(folder)
    about = {"recipe": recipe, "grid": axes, "seeds": seeds, "config": base.model_dump(mode="json")}
    write_json(folder / SWEEP, about)
    failed = _run(mine, _workers(planned, workers), folder)
    _report(chosen, seeds, folder)
    if failed:
        raise typer.Exit(FAILED)


def _axes(grid: list[str]) -> dict[str, list[str]]:
    from swiftfl.experiment.sweep import grid_values

    axes: dict[str, list[str]] = {}
    for text in grid:
        key, equals, values = text.partition("=")
        if not (key and equals and values):
            raise UserError(f"--grid {text}: it must be KEY=A,B,..., such as algorithm=swift,dsgd")
        if key in axes:
            raise UserError(f"--grid {key} is given twice: put all its values into one")
        if key == "seed":
            raise UserError("--grid seed: give --seeds N, which runs each combination with N seeds")
        axes[key] = grid_values(values)
    return axes


def _configured(base: Config, values: Mapping[str, str]) -> Config:
    """The configuration of one cell."""
    changes: Changes = {}
    typed: Typed = {}
    for key, text in values.items():
        found, names = by_name(key, text, f"--grid {key}")
        changes |= found
        typed |= names
    config = changed(base, changes, typed)
    if config.engine.name == "mpi":
        raise UserError("--engine mpi needs one mpiexec for each run: a sweep has local, virtual or sampled")
    return config


def _default_folder(recipe: str) -> Path:
    if "SLURM_ARRAY_TASK_ID" in os.environ:
        raise UserError("the tasks of a job array share one folder: give it with --out")
    return Path("sweeps", default_folder(Path(recipe).resolve().stem).name)


def _workers(planned: Sequence[PlannedRun], asked: int | None) -> int:
    """One run per core, unless the clients of one are processes themselves."""
    from swiftfl.engines.threads import cores

    if asked is None:
        return 1 if any(one.config.engine.real for one in planned) else cores()
    return asked


def _run(mine: Sequence[PlannedRun], workers: int, folder: Path) -> bool:
    """Run what has not finished; whether any run failed."""
    from swiftfl.cli.campaign_screen import CampaignScreen
    from swiftfl.experiment.campaign import campaign

    try:
        with CampaignScreen("sweep") as screen:
            progress = campaign(mine, workers, screen)
    except KeyboardInterrupt:
        command = shlex.join(["swiftfl", *sys.argv[1:]])
        raise Interrupted(f"stopped; to go on with what is in {folder}: {command}") from None
    for line in _failures(progress.failed, progress.runs):
        print(line, file=sys.stderr)
    return bool(progress.failed)


def _failures(failed: Mapping[str, str], runs: int) -> list[str]:
    """A line for each run that failed; one for all, if it is the same with every run.

    >>> _failures({"b/seed-0": "no", "b/seed-1": "no"}, runs=2)
    ['failed: all 2 runs: no']
    >>> _failures({"b/seed-0": "no", "b/seed-1": "no"}, runs=3)
    ['failed: b/seed-0: no', 'failed: b/seed-1: no']
    """
    reasons = set(failed.values())
    if len(failed) == runs > 1 == len(reasons):
        return [f"failed: all {runs} runs: {reasons.pop()}"]
    return [f"failed: {path}: {reason}" for path, reason in failed.items()]


def _report(chosen: Sequence[Combination], seeds: int, folder: Path) -> None:
    """The table, and CSV; of several tasks the last one to end writes what all have found."""
    from swiftfl.files import write_atomically
    from swiftfl.lock import locked
    from swiftfl.report.sweep import SweptCell, sweep_csv, sweep_table

    def runs(cell: Combination) -> dict[int, Path]:
        first = cell.config.seed
        return {seed: cell.folder(folder, seed) for seed in range(first, first + seeds)}

    swept = [SweptCell(cell.values, runs(cell)) for cell in chosen]
    with locked(folder, patience=_PATIENCE):
        write_atomically(folder / "sweep.csv", sweep_csv(swept, folder))
    print_table(sweep_table(swept))
    print(f"Every run: {folder / 'sweep.csv'}")
