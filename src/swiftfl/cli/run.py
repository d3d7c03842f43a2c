"""`swiftfl run` and `swiftfl resume`: one configuration, from a recipe and options."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swiftfl.cli.flags import (
    Changes,
    Typed,
    as_typed,
    check_engine,
    check_used,
    collect,
    read_object,
    with_flags,
)
from swiftfl.cli.names import Imports
from swiftfl.cli.screen import LiveProgress, default_folder, show_table
from swiftfl.errors import UserError
from swiftfl.experiment.imports import recorded_names
from swiftfl.files import json_text
from swiftfl.settings import SettingError
from swiftfl.transports.ranks import rank_here

if TYPE_CHECKING:
    from swiftfl.experiment.config import Config
    from swiftfl.experiment.run import Result

DIVERGED, NOT_RECORDED = 3, 1
"""Exit codes of runs whose result is shown: it is not finite, or it is not where it was to be."""
_CHECKPOINT_SECONDS = 30.0


@with_flags
def run(
    recipe: Annotated[
        str, typer.Argument(help="{recipes}, a configuration (FILE.json), or the folder of a finished run.")
    ],
    imports: Imports = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Any setting by its dotted name (docs/runs.md); repeatable."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder (default: runs/RECIPE-DATE).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as one JSON object.")] = False,
    **flags: object,
) -> None:
    """Train with one algorithm and record it."""
    changes, typed = collect(flags, settings or [])
    if imports:
        changes["imports"] = recorded_names(imports)
    if "engine.iterations" in changes and "engine.epochs" not in changes:
        changes["engine.epochs"] = None
    _run(recipe, changes, typed, out, as_json)


def resume(
    folder: Annotated[Path, typer.Argument(help="The run folder of a run that was stopped.")],
    from_start: Annotated[
        bool,
        typer.Option("--from-start", help="Where nothing that was saved can be read: begin again at step 1."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as one JSON object.")] = False,
) -> None:
    """Go on with a recorded run from its last checkpoint."""
    from swiftfl.experiment.run import resume as resume_run

    with LiveProgress() as screen:
        result = resume_run(folder, screen.of("resumed"), _CHECKPOINT_SECONDS, from_start)
    _show(result, as_json)


def _run(recipe: str, changes: Changes, typed: Typed, out: Path | None, as_json: bool) -> None:
    from swiftfl.experiment.run import run as run_config

    config = _configuration(recipe)
    if "imports" in changes:
        changes["imports"] = list(dict.fromkeys([*config.imports, *changes["imports"]]))
    check_engine(changes.get("engine.name", config.engine.name), typed)
    try:
        config = config.with_changes(fit_ranks(config, changes))
    except SettingError as error:
        raise as_typed(error, typed) from None
    check_used(config, typed)
    if config.algorithm.step_size.initial == 0 and not rank_here():
        print("swiftfl: warning: a step size (--lr) of 0 trains nothing", file=sys.stderr)
    folder = out or default_folder(Path(recipe).resolve().stem)
    with LiveProgress() as screen:
        result = run_config(config, folder, screen.of(config.algorithm.name), _CHECKPOINT_SECONDS)
    _show(result, as_json)


def _configuration(recipe: str) -> Config:
    """What `swiftfl run` starts from: a recipe, a file, or what a finished run recorded."""
    from swiftfl.experiment.config import parse
    from swiftfl.experiment.recipes import RECIPES

    path = Path(recipe)
    if recipe in RECIPES:
        return RECIPES[recipe]()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise UserError(f"{recipe} is a folder without config.json: neither a recipe nor a recorded run")
        if not (path / "summary.json").is_file():
            goes_on = shlex.join(["swiftfl", "resume", recipe])
            raise UserError(f"{recipe} is a run that has not finished: {goes_on} goes on with it")
        path = path / "config.json"
    elif not recipe.endswith(".json"):
        if path.exists():
            raise UserError(f"{recipe} is neither a recipe ({', '.join(RECIPES)}) nor a .json file")
        return RECIPES[recipe]()
    try:
        return parse(read_object(path))
    except SettingError as error:
        raise UserError(f"{path}: {error}") from None


def fit_ranks(config: Config, changes: dict[str, Any]) -> dict[str, Any]:
    """Under MPI there are as many clients as ranks, unless the request says how many."""
    if changes.get("engine.name", config.engine.name) != "mpi":
        return changes
    from swiftfl.transports.mpi import world

    asked = {"topology.clients", "topology.edges"}.intersection(changes) or config.topology.edges
    return changes if asked or world().size == 1 else {**changes, "topology.clients": world().size}


def _draw(result: Result) -> bool:
    """Draw the run, loss and accuracy over time and who holds which labels; whether that could be written."""
    from swiftfl.experiment.notices import notice

    try:
        if result.folder is not None:
            _draw_in(result, result.folder)
    except (UserError, OSError) as error:
        notice(f"no pictures: {error}")
        return False
    return True


def _draw_in(result: Result, folder: Path) -> None:
    from swiftfl.report.run_figures import axis_of, draw_curves, draw_partition

    name = result.config.algorithm.name
    title = f"{name} on {result.config.data.dataset}: the consensus model"
    draw_curves({name: result.curve}, title, [folder / "loss.png"], axis_of(result.config.engine.name))
    draw_partition(folder)


def _show(result: Result, as_json: bool) -> None:
    """The result, even where its files could not be written; the exit code says so."""
    if not result.summary:
        return  # another rank prints it
    drawn = _draw(result)
    if as_json:
        where = None if result.folder is None else str(result.folder)
        print(json_text({**result.summary, "algorithm": result.config.algorithm.name, "run": where}))
    else:
        _show_table(result)
    if result.diverged:
        raise typer.Exit(DIVERGED)
    if result.elsewhere or not drawn:
        raise typer.Exit(NOT_RECORDED)


def _show_table(result: Result) -> None:
    name = result.config.algorithm.name
    graph = result.config.topology
    title = f"{name} on {result.config.data.dataset}, {graph.clients}-client {graph.name}"
    real = result.config.engine.real
    show_table(title, {name: result.summary}, "real" if real else "virtual")
    if real:
        _show_life_and_death(result.summary)
    evaluating = sum(row["evaluation_seconds"] for row in result.curve)
    print(f"Evaluations took {evaluating:.1f} s. Records and pictures: {result.folder or 'none'}")


def _show_life_and_death(summary: dict[str, Any]) -> None:
    """Of a live run: who was lost, what was refused, and how far true rates are from the influence."""
    lost = ", ".join(map(str, summary["lost"])) or "nobody"
    print(f"{summary['wall_seconds']:.1f} s. Lost: {lost}. Models refused: {summary['refused']}.")
    print(
        f"True rates differ from the given influence by {summary['influence_gap']:.1%}; "
        f"row sums of the expected matrix are off by up to {summary['row_sum_error']:.2g}."
    )
    for warning in summary["warnings"]:
        print(f"Warning: {warning}")
