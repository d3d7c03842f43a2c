"""`swiftfl run` and `swiftfl resume`: one configuration, from a recipe and options."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swiftfl.cli.configuration import changed, configuration
from swiftfl.cli.flag_options import with_flags
from swiftfl.cli.flags import collect
from swiftfl.cli.names import AcceptChanges, Imports
from swiftfl.cli.screen import default_folder, show_table
from swiftfl.cli.watch import RunScreen
from swiftfl.dashboard import require_server
from swiftfl.errors import UserError
from swiftfl.experiment.source import reference, short_name
from swiftfl.files import json_text
from swiftfl.transports.ranks import rank_here

if TYPE_CHECKING:
    from swiftfl.experiment.config import Config
    from swiftfl.experiment.run import RunResult

DIVERGED, NOT_RECORDED = 3, 1
"""Exit codes of runs whose result is shown: it is not finite, or it is not where it was to be."""
_CHECKPOINT_SECONDS = 30.0


Dashboard = Annotated[
    bool, typer.Option("--dashboard", help="Show the run in a browser while it goes on (docs/dashboard.md).")
]


@with_flags
def run(
    recipe: Annotated[
        str,
        typer.Argument(
            help="{recipes}; a file (.yaml, .toml, .json); an experiment of your own "
            "(mine.py:experiment); or the folder of a finished run.",
            show_default=False,
        ),
    ],
    imports: Imports = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Any setting by its name (docs/configuration.md); repeatable.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder (default: runs/RECIPE-DATE).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as one JSON object.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the whole configuration as YAML, and run nothing.")
    ] = False,
    dashboard: Dashboard = False,
    **flags: object,
) -> None:
    """Train with one algorithm and record it.

    swiftfl run digits --algorithm dsgd --epochs 10

    swiftfl run my.yaml --set lr=0.05 --out runs/mine
    """
    if dashboard:
        require_server()
    config = changed(configuration(recipe), *collect(flags, settings or []), imports)
    if dry_run:
        _show_configuration(config)
    else:
        _run(config, out or default_folder(_stem(recipe)), as_json, dashboard)


def resume(
    folder: Annotated[Path, typer.Argument(help="The run folder of a run that was stopped.")],
    from_start: Annotated[
        bool,
        typer.Option("--from-start", help="Where nothing that was saved can be read: begin again at step 1."),
    ] = False,
    accept_changes: AcceptChanges = False,
    workers: Annotated[
        str | None,
        typer.Option("--workers", help="Processes of a simulated run: auto or a number. The same bits."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as one JSON object.")] = False,
    dashboard: Dashboard = False,
) -> None:
    """Go on with a recorded run from its last checkpoint.

    swiftfl resume runs/mine

    mpiexec -n 8 swiftfl resume runs/on-the-cluster
    """
    from swiftfl.api.own_experiment import objects_of_run
    from swiftfl.experiment.run import resume as resume_run

    others = None if workers is None else _workers_of(folder, workers)
    given = objects_of_run(folder, accept_changes)
    with _dashboard_beside(folder, dashboard) as stay:
        with RunScreen(folder) as screen:
            result = resume_run(
                folder,
                screen,
                _CHECKPOINT_SECONDS,
                from_start,
                given=given,
                accept_changes=accept_changes,
                workers=others,
            )
        _show(result, as_json, stay)


def _workers_of(folder: Path, text: str) -> int | str:
    """The number of processes that a resume asks for, of a run that may have several."""
    from swiftfl.cli.flags import processes
    from swiftfl.experiment.used import check_engine
    from swiftfl.record import RunFolder

    engine = RunFolder.open(folder).read_object("config.json").get("engine")
    check_engine(engine.get("name") if isinstance(engine, dict) else None, {"engine.workers": "--workers"})
    return processes(text)


def _stem(recipe: str) -> str:
    """What a run is called if nothing else is said."""
    said = reference(recipe)
    return Path(recipe).resolve().stem if said is None else said.name


def _show_configuration(config: Config) -> None:
    """The resolved configuration, as a file that can be run; of many ranks, the first prints it."""
    from swiftfl.experiment.build import resolve
    from swiftfl.experiment.config_file import yaml_text

    if not rank_here():
        print(yaml_text(resolve(config).model_dump(mode="json")), end="")


def _run(config: Config, folder: Path, as_json: bool, dashboard: bool) -> None:
    from swiftfl.api.own_experiment import objects_of
    from swiftfl.experiment.run import run as run_config

    given = objects_of(config)
    if not rank_here():
        _warn_of_steps(config)
    with _dashboard_beside(folder, dashboard) as stay:
        with RunScreen(folder) as screen:
            result = run_config(config, folder, screen, _CHECKPOINT_SECONDS, given=given)
        _show(result, as_json, stay)


def _warn_of_steps(config: Config) -> None:
    """Of step sizes that are allowed and hardly meant."""
    steps, epochs = config.algorithm.step_size, config.engine.epochs
    if steps.initial == 0:
        print("swiftfl: warning: a step size (--lr) of 0 trains nothing", file=sys.stderr)
    elif epochs is not None and steps.warmup >= epochs:
        print(
            f"swiftfl: warning: the run ends (--epochs {epochs}) before its step size is reached "
            f"(--warmup {steps.warmup:g})",
            file=sys.stderr,
        )


@contextlib.contextmanager
def _dashboard_beside(folder: Path, wanted: bool) -> Iterator[Callable[[], None]]:
    """A page that follows the run, of many ranks the first one's; gives what lets it stay after the end."""
    if not wanted or rank_here():
        yield lambda: None
        return
    from swiftfl.dashboard.beside import DashboardBeside

    with DashboardBeside(folder) as page:
        yield page.stay


def _draw(result: RunResult) -> bool:
    """Draw the run, loss and accuracy over time and who holds which labels; whether that could be written."""
    from swiftfl.experiment.notices import notice

    try:
        if result.folder is not None:
            _draw_in(result, result.folder)
    except (UserError, OSError) as error:
        notice(f"no pictures: {error}")
        return False
    return True


def _draw_in(result: RunResult, folder: Path) -> None:
    from swiftfl.report.run_figures import axis_of, draw_curves, draw_partition

    name = short_name(result.config.algorithm.name)
    title = f"{name} on {short_name(result.config.data.dataset)}: the consensus model"
    draw_curves({name: result.curve}, title, [folder / "loss.png"], axis_of(result.config.engine.name))
    draw_partition(folder)


def _show(result: RunResult, as_json: bool, then: Callable[[], None]) -> None:
    """The result, even where its files could not be written; the exit code says so."""
    if not result.summary:
        return  # another rank prints it
    drawn = _draw(result)
    if as_json:
        where = None if result.folder is None else str(result.folder)
        print(json_text({**result.summary, "algorithm": result.config.algorithm.name, "run": where}))
    else:
        _show_table(result)
    then()
    if result.diverged:
        raise typer.Exit(DIVERGED)
    if result.elsewhere or not drawn:
        raise typer.Exit(NOT_RECORDED)


def _show_table(result: RunResult) -> None:
    name = short_name(result.config.algorithm.name)
    graph = result.config.topology
    title = f"{name} on {short_name(result.config.data.dataset)}, {graph.clients}-client {graph.name}"
    real, drawn = result.config.engine.real, result.config.engine.name == "sampled"
    show_table(title, {name: result.summary}, "real" if real else None if drawn else "virtual")
    if real:
        _show_life_and_death(result.summary)
    if (privacy := result.summary.get("privacy")) is not None:
        _show_privacy(privacy)
    evaluating = sum(row["evaluation_seconds"] for row in result.curve)
    print(f"Evaluations took {evaluating:.1f} s. Records and pictures: {result.folder or 'none'}")


def _show_privacy(spent: dict[str, Any]) -> None:
    if spent["epsilon"] is None:
        print("Privacy: epsilon is not known: clients were started again, and may have repeated steps.")
        return
    print(f"Privacy of each sample: epsilon {spent['epsilon']:.3g} at delta {spent['delta']:g}.")


def _show_life_and_death(summary: dict[str, Any]) -> None:
    """Of a live run: who was lost, what was refused, and how far true rates are from the influence."""
    lost = ", ".join(map(str, summary["lost"])) or "nobody"
    print(f"{summary['wall_seconds']:.1f} s. Lost: {lost}. Models refused: {summary['refused']}.")
    print(f"True rates differ from the given influence by {summary['influence_gap']:.1%}.")
    print(f"Row sums of the expected matrix are off by up to {summary['row_sum_error']:.2g}.")
    for warning in summary["warnings"]:
        print(f"Warning: {warning}")
