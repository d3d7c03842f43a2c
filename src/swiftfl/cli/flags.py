"""The options of `swiftfl run` as one table: what is typed, which setting it changes, and who uses it.

A setting without an option of its own is reached with `--set`. In help texts, words in braces such as
{algorithms} are replaced by what the registries hold.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swiftfl.errors import UserError
from swiftfl.files import read_text_file
from swiftfl.settings import SettingError, name_and_options

if TYPE_CHECKING:
    from swiftfl.experiment.config import Config

TRAINING, NETWORK, TIME, OTHER = "Training", "Network and weights", "Time and processes", "Options"
Changes = dict[str, Any]
Typed = dict[str, str]
"""From a setting's dotted name to what the user typed to change it."""


@dataclass(frozen=True)
class Flag:
    """An option that changes one setting (or, with `read`, several)."""

    name: str
    key: str
    type: object
    help: str
    panel: str
    read: Callable[[Any, str], Changes] | None = None

    @property
    def parameter(self) -> str:
        return self.name.lstrip("-").replace("-", "_")

    def changes(self, value: Any) -> tuple[Changes, Typed]:
        """The settings that a typed value changes, and how errors name them."""
        if self.read is not None:
            found = self.read(value, self.key)
            shown = value if isinstance(value, str | Path) else " ".join(map(str, value))
            return found, {key: self.name if key == self.key else f"{self.name} {shown}" for key in found}
        return {self.key: str(value) if isinstance(value, Path) else value}, {self.key: self.name}


def _object(path: Path, key: str) -> Changes:
    return {key: read_object(path)}


def _topology(text: str, key: str) -> Changes:
    try:
        name, options = name_and_options(text)
    except UserError as error:
        raise UserError(f"--topology {error}") from None
    return {key: name, "topology.options": options}


def _schedule(text: str, key: str) -> Changes:
    try:
        name, options = name_and_options(text)
    except UserError as error:
        raise UserError(f"--schedule {error}") from None
    section = key.rpartition(".")[0]
    return {key: name, **{f"{section}.{option}": _plain(value) for option, value in options.items()}}


def _slowdowns(texts: list[str], key: str) -> Changes:
    found = []
    for text in texts:
        client, _, factor = text.partition(":")
        try:
            found.append({"client": int(client), "factor": float(factor)})
        except ValueError:
            raise UserError(f"--slowdown {text}: it must be CLIENT:FACTOR, such as 3:4") from None
    return {key: found}


def _influence(text: str, key: str) -> Changes:
    if text in ("uniform", "data", "measured"):
        return {key: text}
    try:
        return {key: [float(score) for score in text.split(",")]}
    except ValueError:
        raise UserError(f"--influence {text}: it must be uniform, data, measured or numbers") from None


def _metrics(text: str, key: str) -> Changes:
    return {key: text.split(",")}


FLAGS = (
    Flag("--algorithm", "algorithm.name", str, "{algorithms}.", TRAINING),
    Flag("--model", "model.name", str, "{models}.", TRAINING),
    Flag("--norm", "model.norm", str, "Normalisation of cnn and resnets: batch or group.", TRAINING),
    Flag("--partition", "data.partition", str, "{partitions}.", TRAINING),
    Flag("--data", "data.folder", Path, "The folder with the dataset's files.", TRAINING),
    Flag("--epochs", "engine.epochs", int, "Passes of each client over its own data.", TRAINING),
    Flag("--iterations", "engine.iterations", int, "Stop after so many client steps in all.", TRAINING),
    Flag("--batch-size", "data.batch_size", int, "Samples per step.", TRAINING),
    Flag("--rule", "algorithm.rule", str, "The update rule: {rules}.", TRAINING),
    Flag("--lr", "algorithm.step_size.initial", float, "The step size.", TRAINING),
    Flag("--schedule", "algorithm.step_size.schedule", str,
         "How the step size changes: {schedules}; options as in cosine:final=0.01.", TRAINING, _schedule),
    Flag("--warmup", "algorithm.step_size.warmup", float, "Epochs until the step size is reached.", TRAINING),
    Flag("--momentum", "algorithm.momentum", float, "Of sgd and rmsprop: from 0 to below 1.", TRAINING),
    Flag("--weight-decay", "algorithm.weight_decay", float, "Of the rule: 0 or more.", TRAINING),
    Flag("--clip", "algorithm.clip", float, "The largest norm of a gradient; longer ones shrink.", TRAINING),
    Flag("--moments", "algorithm.moments", str,
         "When models are averaged, what the rule remembers is kept or reset.", TRAINING),
    Flag("--communication-set", "algorithm.communication_set", int, "The s of SWIFT's C_s.", TRAINING),
    Flag("--i1", "algorithm.i1", int, "Local steps of pasgd, ldsgd, fedavg.", TRAINING),
    Flag("--i2", "algorithm.i2", int, "Averaging steps of ldsgd.", TRAINING),
    Flag("--order", "algorithm.order", str, "Of dsgd, pasgd, ldsgd: update_first or average_first.",
         TRAINING),
    Flag("--broadcast", "algorithm.broadcast", str, "Of swift: before or after the gradient.",
         TRAINING),
    Flag("--averaging", "algorithm.averaging", str, "Of adpsgd: after the gradient or in the background.",
         TRAINING),
    Flag("--budget", "algorithm.budget", float, "Of matcha: the share of links in use.", TRAINING),
    Flag("--buffers", "model.buffers", str, "Running buffers of batch norm: averaged, or each client's own.",
         TRAINING),
    Flag("--batching", "model.batching", str, "Gradients of many clients at once: auto, measure, on or off.",
         TRAINING),
    Flag("--device", "model.device", str, "Where gradients are computed.", TRAINING),
    Flag("--evaluate-every", "evaluation.every_epochs", float, "Epochs between evaluations.", TRAINING),
    Flag("--evaluate-clients", "evaluation.clients", int, "Clients whose own models are evaluated, too.",
         TRAINING),
    Flag("--metrics", "evaluation.metrics", str, "With commas between: {metrics}.", TRAINING, _metrics),
    Flag("--topology", "topology.name", str, "{topologies}; with options as in random_regular:degree=4.",
         NETWORK, _topology),
    Flag("--clients", "topology.clients", int, "The number of clients.", NETWORK),
    Flag("--clusters", "topology.clusters", int, "Cliques of ring_of_cliques.", NETWORK),
    Flag("--edges", "topology.edges", Path, "Read the topology from a file instead.", NETWORK),
    Flag("--weights", "algorithm.weights", str, "{weights}.", NETWORK),
    Flag("--ccs", "engine.ccs", str, "central, or distributed: clients select weights by messages.", NETWORK),
    Flag("--influence", "influence", str, "uniform, data, measured, or 0.1,0.2,...", NETWORK, _influence),
    Flag("--objective", "objective", str, "as_run, or as_given with measured influence.", NETWORK),
    Flag("--network", "engine.network", Path, "JSON: how the network changes (docs/network.md).", NETWORK,
         _object),
    Flag("--engine", "engine.name", str, "virtual, sampled, local (real processes) or mpi (under mpiexec).",
         TIME),
    Flag("--slowdown", "engine.costs.slowdowns", list[str], "CLIENT:FACTOR; may be given again.", TIME,
         _slowdowns),
    Flag("--costs", "engine.costs", Path, "JSON: what things cost in virtual time (docs/runs.md).", TIME,
         _object),
    Flag("--restart-lost", "engine.live.restart_lost", bool, "Of local: start lost clients again.", TIME),
    Flag("--barrier", "engine.barrier", str, "Of algorithms in rounds: neighbours or global.", TIME),
    Flag("--seed", "seed", int, "Of everything that is random.", OTHER),
)  # fmt: skip


def with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that takes **flags the options of the table."""
    signature = inspect.signature(command, eval_str=True)
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    added = [_parameter(flag) for flag in FLAGS]
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in [*own, *added]]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def _parameter(flag: Flag) -> inspect.Parameter:
    if flag.type is bool:
        option = typer.Option(flag.name, help=flag.help, rich_help_panel=flag.panel)
        annotation, default = Annotated[bool, option], False
    else:
        option = typer.Option(help=flag.help, rich_help_panel=flag.panel, show_default=False)
        annotation, default = Annotated[flag.type | None, option], None  # type: ignore[operator]
    return inspect.Parameter(
        flag.parameter, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def collect(given: Mapping[str, Any], settings: list[str]) -> tuple[Changes, Typed]:
    """All changes that were typed: options by their parameters, then `--set KEY=VALUE`."""
    changes: Changes = {}
    typed: Typed = {}
    for flag in FLAGS:
        value = given[flag.parameter]
        if value is None or value is False or value == []:
            continue
        found, names = flag.changes(value)
        changes |= found
        typed |= names
        if isinstance(value, list):
            typed |= {f"{flag.key}.{k}": f"{flag.name} {text}" for k, text in enumerate(value)}
    for text in settings:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise UserError(f"--set {text}: it must be KEY=VALUE, such as engine.costs.jitter=0.01")
        changes[key], typed[key] = _plain(value), f"--set {key}"
    return changes, typed


def _plain(text: str) -> Any:
    """JSON, or the text itself where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def as_typed(error: SettingError, typed: Typed) -> UserError:
    """The error with what was typed in place of the setting's name."""
    if error.key in typed:
        return error.renamed(typed[error.key])
    for key in sorted(typed, key=len, reverse=True):
        if error.key.startswith(f"{key}."):
            return error.renamed(f"{typed[key]}: {error.key[len(key) + 1 :]}")
        if key.startswith(f"{error.key}."):
            return error.renamed(f"{typed[key]}: {error.key}")
    flags = {flag.key: flag.name for flag in FLAGS}
    return error.renamed(flags.get(error.key, error.key))


ENGINES = ("virtual", "sampled", "local", "mpi")
_USED_BY: dict[str, tuple[str, ...]] = {
    "engine.costs": ("virtual",),
    "engine.costs.slowdowns": ("virtual", "local", "mpi"),
    "engine.costs.trace": ("virtual", "local", "mpi"),
    "engine.network.measure_every": ("virtual", "local", "mpi"),
    "engine.live": ("local", "mpi"),
    "engine.live.restart_lost": ("local",),
}
"""The engines that use a setting; those that are not named here are used by all."""


def check_engine(engine: object, typed: Typed) -> None:
    """Refuse what was typed but is not used by the engine that was chosen."""
    for key, name in typed.items():
        section = max((k for k in _USED_BY if f"{key}.".startswith(f"{k}.")), key=len, default=None)
        engines = _USED_BY[section] if section else ENGINES
        if engine in ENGINES and engine not in engines:
            *others, last = engines
            users = f"{', '.join(others)} or {last}" if others else last
            raise UserError(f"{name} is for engine {users}, not {engine}")


def check_used(config: Config, typed: Typed) -> None:
    """Refuse what was typed but is not used by the algorithm and topology that were chosen."""
    from swiftfl.algorithms import ALGORITHMS

    entry = ALGORITHMS[config.algorithm.name]
    if "engine.barrier" in typed and entry.in_rounds is False:
        raise UserError(
            f"{typed['engine.barrier']} is for algorithms that meet in rounds, and {entry.name} does not"
        )
    if "algorithm.weights" in typed and not entry.weighted:
        raise UserError(f"{typed['algorithm.weights']} has no effect: {entry.name} has weights of its own")
    if "topology.edges" in typed:
        for key in ("topology.name", "topology.clients", "topology.clusters"):
            if key in typed:
                raise UserError(f"{typed[key]} has no effect with --edges: the file is the topology")


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object from a user's file."""
    try:
        value = json.loads(read_text_file(path))
    except UserError:
        raise
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON that can be read: {error}") from None
    if not isinstance(value, dict):
        raise UserError(f"{path} must hold a JSON object")
    return value
