"""`swiftfl run` and `swiftfl resume`: one configuration, from a recipe and options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swiftfl.cli.screen import LiveProgress, default_folder, show_table
from swiftfl.errors import UserError
from swiftfl.files import json_text

if TYPE_CHECKING:
    from swiftfl.experiment.config import Config
    from swiftfl.experiment.run import Result

DIVERGED, NOT_RECORDED = 3, 1
"""Exit codes of runs whose result is shown: it is not finite, or it is not where it was to be."""
_CHECKPOINT_SECONDS = 30.0
_TOPOLOGY_OPTIONS = {"degree": int, "probability": float, "attach": int, "rows": int, "cols": int}
_TRAINING, _NETWORK, _TIME = "Training", "Network and weights", "Virtual time"


def run(
    recipe: Annotated[str, typer.Argument(help="digits, fashion, cifar10, synthetic, or a config.json.")],
    algorithm: Annotated[
        str | None,
        typer.Option(
            help="swift, dsgd, pasgd, ldsgd, adpsgd, matcha, gossip, allreduce or fedavg.",
            rich_help_panel=_TRAINING,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="logistic, mlp, cnn, resnet18 (34, 50, 101, 152) or thin_resnet18 (34, 50, 101, 152).",
            rich_help_panel=_TRAINING,
        ),
    ] = None,
    norm: Annotated[
        str | None,
        typer.Option(help="Normalisation of cnn and resnets: batch or group.", rich_help_panel=_TRAINING),
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option(
            help="iid, cyclic_classes, label_skew:DEGREE, dirichlet:ALPHA, by_size:SHARE,..., "
            "bootstrap:SAMPLES or from_file:PATH.",
            rich_help_panel=_TRAINING,
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="The folder with the dataset's files.", rich_help_panel=_TRAINING)
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes of each client over its own data.", rich_help_panel=_TRAINING)
    ] = None,
    iterations: Annotated[
        int | None, typer.Option(help="Stop after so many client steps in all.", rich_help_panel=_TRAINING)
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Samples per step.", rich_help_panel=_TRAINING)
    ] = None,
    lr: Annotated[float | None, typer.Option(help="The step size.", rich_help_panel=_TRAINING)] = None,
    momentum: Annotated[
        float | None, typer.Option(help="From 0 to below 1.", rich_help_panel=_TRAINING)
    ] = None,
    weight_decay: Annotated[float | None, typer.Option(help="0 or more.", rich_help_panel=_TRAINING)] = None,
    communication_set: Annotated[
        int | None, typer.Option(help="The s of SWIFT's C_s.", rich_help_panel=_TRAINING)
    ] = None,
    i1: Annotated[
        int | None, typer.Option(help="Local steps of pasgd, ldsgd, fedavg.", rich_help_panel=_TRAINING)
    ] = None,
    i2: Annotated[
        int | None, typer.Option(help="Averaging steps of ldsgd.", rich_help_panel=_TRAINING)
    ] = None,
    budget: Annotated[
        float | None, typer.Option(help="Of matcha: the share of links in use.", rich_help_panel=_TRAINING)
    ] = None,
    batching: Annotated[
        str | None,
        typer.Option(
            help="Gradients of many clients at once: auto, measure, on or off.", rich_help_panel=_TRAINING
        ),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Where gradients are computed.", rich_help_panel=_TRAINING)
    ] = None,
    topology: Annotated[
        str | None,
        typer.Option(
            help="A name, or name:option=value,... such as random_regular:degree=4.", rich_help_panel=_NETWORK
        ),
    ] = None,
    clients: Annotated[
        int | None, typer.Option(help="The number of clients.", rich_help_panel=_NETWORK)
    ] = None,
    clusters: Annotated[
        int | None, typer.Option(help="Cliques of ring_of_cliques.", rich_help_panel=_NETWORK)
    ] = None,
    edges: Annotated[
        Path | None, typer.Option(help="Read the topology from a file instead.", rich_help_panel=_NETWORK)
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            help="ccs, ccs_by_rate, metropolis, fastest, uniform or one_over_n.", rich_help_panel=_NETWORK
        ),
    ] = None,
    influence: Annotated[
        str | None, typer.Option(help="uniform, data, measured, or 0.1,0.2,...", rich_help_panel=_NETWORK)
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(help="as_run, or as_given with measured influence.", rich_help_panel=_NETWORK),
    ] = None,
    network: Annotated[
        Path | None,
        typer.Option(help="JSON: how the network changes (docs/network.md).", rich_help_panel=_NETWORK),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help="virtual, sampled, local (real processes) or mpi (under mpiexec).", rich_help_panel=_TIME
        ),
    ] = None,
    slowdown: Annotated[
        list[str] | None, typer.Option(help="CLIENT:FACTOR; may be given again.", rich_help_panel=_TIME)
    ] = None,
    costs: Annotated[
        Path | None,
        typer.Option(help="JSON: what things cost in virtual time (docs/runs.md).", rich_help_panel=_TIME),
    ] = None,
    restart_lost: Annotated[
        bool,
        typer.Option("--restart-lost", help="Of local: start lost clients again.", rich_help_panel=_TIME),
    ] = False,
    barrier: Annotated[
        str | None, typer.Option(help="Of waiting algorithms: neighbours or global.", rich_help_panel=_TIME)
    ] = None,
    evaluate_every: Annotated[
        float | None, typer.Option(help="Epochs between evaluations.", rich_help_panel=_TRAINING)
    ] = None,
    evaluate_clients: Annotated[
        int | None,
        typer.Option(help="Clients whose own models are evaluated, too.", rich_help_panel=_TRAINING),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything that is random.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder (default: runs/RECIPE-DATE).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as one JSON object.")] = False,
) -> None:
    """Train with one algorithm and record it."""
    name, options = _topology(topology)
    changes: dict[str, Any] = {
        "algorithm.name": algorithm,
        "topology.name": name,
        "topology.options": options,
        "topology.clients": clients,
        "topology.clusters": clusters,
        "topology.edges": None if edges is None else str(edges),
        "data.partition": partition,
        "data.folder": None if data is None else str(data),
        "data.batch_size": batch_size,
        "model.name": model,
        "model.norm": norm,
        "model.batching": batching,
        "model.device": device,
        "engine.name": engine,
        "engine.barrier": barrier,
        "engine.live.restart_lost": restart_lost or None,
        "engine.iterations": iterations,
        "engine.epochs": epochs,
        "engine.network": None if network is None else read_object(network),
        "engine.costs": None if costs is None else read_object(costs),
        "engine.costs.slowdowns": [_slowdown(text) for text in slowdown] if slowdown else None,
        "algorithm.step_size.initial": lr,
        "algorithm.momentum": momentum,
        "algorithm.weight_decay": weight_decay,
        "algorithm.communication_set": communication_set,
        "algorithm.i1": i1,
        "algorithm.i2": i2,
        "algorithm.budget": budget,
        "algorithm.weights": weights,
        "evaluation.every_epochs": evaluate_every,
        "evaluation.clients": evaluate_clients,
        "influence": _influence(influence),
        "objective": objective,
        "seed": seed,
    }
    given = {key: value for key, value in changes.items() if value is not None}
    if iterations is not None and epochs is None:
        given["engine.epochs"] = None
    _run(recipe, given, out, as_json)


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


def _run(recipe: str, changes: dict[str, Any], out: Path | None, as_json: bool) -> None:
    from swiftfl.experiment.config import parse
    from swiftfl.experiment.recipes import recipe as named
    from swiftfl.experiment.run import run as run_config

    config = parse(read_object(Path(recipe))) if recipe.endswith(".json") else named(recipe)
    config = config.with_changes(fit_ranks(config, changes))
    folder = out or default_folder(Path(recipe).stem)
    with LiveProgress() as screen:
        result = run_config(config, folder, screen.of(config.algorithm.name), _CHECKPOINT_SECONDS)
    _show(result, as_json)


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
    from swiftfl.report.curves import draw_curves
    from swiftfl.report.partition import draw_partition

    name = result.config.algorithm.name
    title = f"{name} on {result.config.data.dataset}: the consensus model"
    draw_curves({name: result.curve}, title, [folder / "loss.png"], result.config.engine.name)
    draw_partition(folder)


def _show(result: Result, as_json: bool) -> None:
    """The result, whatever became of its files; the exit code tells what did."""
    if not result.summary:
        return  # another rank tells
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


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object from a user's file."""
    try:
        value = json.loads(path.read_text())
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON that can be read: {error}") from None
    if not isinstance(value, dict):
        raise UserError(f"{path} must hold a JSON object")
    return value


def _topology(text: str | None) -> tuple[str | None, dict[str, Any] | None]:
    """`name` or `name:option=value,option=value`."""
    if text is None:
        return None, None
    name, _, rest = text.partition(":")
    options: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        key, _, value = item.partition("=")
        if key not in _TOPOLOGY_OPTIONS:
            raise UserError(f"--topology {text}: options are {', '.join(_TOPOLOGY_OPTIONS)}, not {key!r}")
        try:
            options[key] = _TOPOLOGY_OPTIONS[key](value)
        except ValueError:
            raise UserError(f"--topology {text}: {value!r} is not a number") from None
    return name, options


def _slowdown(text: str) -> dict[str, float]:
    client, _, factor = text.partition(":")
    try:
        return {"client": int(client), "factor": float(factor)}
    except ValueError:
        raise UserError(f"--slowdown {text}: it must be CLIENT:FACTOR, such as 3:4") from None


def _influence(text: str | None) -> str | list[float] | None:
    if text is None or text in ("uniform", "data", "measured"):
        return text
    try:
        return [float(score) for score in text.split(",")]
    except ValueError:
        raise UserError(f"--influence {text}: it must be uniform, data, measured or numbers") from None
