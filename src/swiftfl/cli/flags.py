"""The options of `swiftfl run` as one table: what is typed, which setting it changes, and who uses it.

A setting without an option of its own is reached with `--set`. In help texts, words in braces such as
{algorithms} are replaced by what the registries hold.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swiftfl.errors import UserError
from swiftfl.settings import SettingError, name_and_options

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
    from swiftfl.experiment.config_file import read_config_file

    return {key: read_config_file(path).tree}


def _topology(text: str, key: str) -> Changes:
    try:
        name, options = name_and_options(text)
    except UserError as error:
        raise UserError(f"--topology {error}") from None
    return {key: name, "topology.options": options}


def _algorithm(text: str, key: str) -> Changes:
    """`swift:communication_set=1`, as `train` and `swiftfl launch` have it; `mine.py:Lazy` is a name."""
    if "=" not in str(text):
        return {key: text}
    try:
        name, options = name_and_options(text)
    except UserError as error:
        raise UserError(f"--algorithm {error}") from None
    return {key: name, **{f"algorithm.{option}": _plain(value) for option, value in options.items()}}


def _schedule(text: str, key: str) -> Changes:
    try:
        name, options = name_and_options(text)
    except UserError as error:
        raise UserError(f"--schedule {error}") from None
    section = key.rpartition(".")[0]
    return {key: name, **{f"{section}.{option}": _plain(value) for option, value in options.items()}}


def _step_size(text: str, key: str) -> Changes:
    if text == "corrected":
        return {f"{key}.corrected": True}
    try:
        return {f"{key}.initial": float(text)}
    except ValueError:
        raise UserError(f"--step-size {text}: it must be a number, or corrected") from None


def _shifts(texts: list[str], key: str) -> Changes:
    """KIND:at=5,every=5,clients=0-3,classes=0+1,scale=2; lists of numbers have + between, ranges -."""
    found = []
    for text in texts:
        try:
            kind, given = name_and_options(text)
        except UserError as error:
            raise UserError(f"--shift {error}") from None
        options = {name: _plain(value) for name, value in given.items()}
        try:
            if "clients" in given:
                options["clients"] = _numbered(given["clients"])
            if "classes" in given:
                options["classes"] = _numbered(given["classes"])
        except ValueError:
            raise UserError(f"--shift {text}: clients and classes are numbers such as 0-3 or 0+2+5") from None
        found.append({"kind": kind, **options})
    return {key: found}


def _numbered(text: str) -> list[int]:
    """0+2+5, or 0-3 for 0 to 3."""
    numbers: list[int] = []
    for part in text.split("+"):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def _slowdowns(texts: list[str], key: str) -> Changes:
    found = []
    for text in texts:
        client, _, factor = text.partition(":")
        try:
            found.append({"client": int(client), "factor": float(factor)})
        except ValueError:
            raise UserError(f"--slowdown {text}: it must be CLIENT:FACTOR, such as 3:4") from None
    return {key: found}


def _poisons(texts: list[str], key: str) -> Changes:
    """CLIENT:KIND:factor=-10; without a kind, scaled."""
    found = []
    for text in texts:
        client, _, rest = text.partition(":")
        try:
            kind, given = name_and_options(rest or "scaled")
            found.append({"client": int(client), "kind": kind, **{k: _plain(v) for k, v in given.items()}})
        except (ValueError, UserError):
            raise UserError(f"--poison {text}: it must be CLIENT:KIND, such as 3:noise:scale=2") from None
    return {key: found}


def _influence(text: str, key: str) -> Changes:
    if text in ("uniform", "data", "measured"):
        return {key: text}
    try:
        return {key: [float(score) for score in text.split(",")]}
    except ValueError:
        raise UserError(f"--influence {text}: it must be uniform, data, measured or numbers") from None


def _codec(text: str, key: str) -> Changes:
    """`topk:share=0.01`, or the value alone where there is one option: `topk:0.01`."""
    from swiftfl.transports.registry import codec_named

    if ":" not in text:
        return {key: text}
    try:
        name, options = codec_named(text)
    except SettingError as error:
        raise UserError(f"--codec {text}: {error}") from None
    return {key: name, "engine.codec_options": options}


def _privacy(text: str, key: str) -> Changes:
    """noise=1.1,clip=1,delta=1e-5"""
    try:
        _, options = name_and_options(f"privacy:{text}")
    except UserError:
        raise UserError(f"--privacy {text}: it is written noise=1.1,clip=1,delta=1e-5") from None
    return {f"{key}.{option}": _plain(value) for option, value in options.items()}


def processes(text: str) -> int | str:
    """What --workers says."""
    if text != "auto" and not (text.isdecimal() and int(text)):
        raise UserError(f"--workers {text}: it must be auto, or a number of processes")
    return text if text == "auto" else int(text)


def _workers(text: str, key: str) -> Changes:
    return {key: processes(text)}


def _metrics(text: str, key: str) -> Changes:
    return {key: text.split(",")}


def _switch(text: str, key: str) -> Changes:
    if text not in ("on", "off"):
        raise UserError(f"--facts {text}: it must be on or off")
    return {key: text == "on"}


FLAGS = (
    Flag("--algorithm", "algorithm.name", str,
         "{algorithms}; with options as in swift:communication_set=1.", TRAINING, _algorithm),
    Flag("--model", "model.name", str, "{models}.", TRAINING),
    Flag("--norm", "model.norm", str, "Normalisation of cnn and resnets: batch or group.", TRAINING),
    Flag("--dataset", "data.dataset", str, "{datasets}.", TRAINING),
    Flag("--partition", "data.partition", str, "{partitions}.", TRAINING),
    Flag("--shift", "data.shift", list[str],
         "Data that change, as in label_rotation:at=5,clients=0-3; may be given again.", TRAINING, _shifts),
    Flag("--data", "data.folder", Path, "The folder with the dataset's files.", TRAINING),
    Flag("--epochs", "engine.epochs", int, "Passes of each client over its own data.", TRAINING),
    Flag("--iterations", "engine.iterations", int, "Stop after so many client steps in all.", TRAINING),
    Flag("--batch-size", "data.batch_size", int, "Samples per step.", TRAINING),
    Flag("--rule", "algorithm.rule", str, "The update rule: {rules}.", TRAINING),
    Flag("--lr", "algorithm.step_size.initial", float, "The step size.", TRAINING),
    Flag("--step-size", "algorithm.step_size", str,
         "A number, as --lr; or, of swift, corrected: by the ages of models.", TRAINING, _step_size),
    Flag("--schedule", "algorithm.step_size.schedule", str,
         "How the step size changes: {schedules}; options as in cosine:final=0.01.", TRAINING, _schedule),
    Flag("--warmup", "algorithm.step_size.warmup", float, "Epochs until the step size is reached.", TRAINING),
    Flag("--momentum", "algorithm.momentum", float, "Of sgd and rmsprop: from 0 to below 1.", TRAINING),
    Flag("--weight-decay", "algorithm.weight_decay", float, "Of the rule: 0 or more.", TRAINING),
    Flag("--clip", "algorithm.clip", float, "The largest norm of a gradient; longer ones shrink.", TRAINING),
    Flag("--moments", "algorithm.moments", str,
         "When models are averaged, what the rule remembers is kept or reset.", TRAINING),
    Flag("--codec", "engine.codec", str, "How models are written for the wire: {codecs}, as in topk:0.01.",
         TRAINING, _codec),
    Flag("--privacy", "privacy", str,
         "Clip gradients by sample and add noise, as in noise=1.1,clip=1,delta=1e-5.", TRAINING, _privacy),
    Flag("--mixing", "algorithm.mixing", str,
         "Where a neighbour may be bad, how models are averaged: {mixings}.", TRAINING),
    Flag("--tolerate", "algorithm.tolerate", float,
         "Of clipped, trimmed: the neighbour weight that may be bad; without, one neighbour.", TRAINING),
    Flag("--communication-set", "algorithm.communication_set", int, "The s of SWIFT's C_s.", TRAINING),
    Flag("--i1", "algorithm.i1", int, "Local steps of pasgd, ldsgd, fedavg.", TRAINING),
    Flag("--i2", "algorithm.i2", int, "Averaging steps of ldsgd.", TRAINING),
    Flag("--participation", "algorithm.participation", float, "Of fedavg: the share of clients in a round.",
         TRAINING),
    Flag("--local-steps", "algorithm.local_steps", int, "Of swarm, divshare: steps per averaging.", TRAINING),
    Flag("--group-size", "algorithm.group_size", int, "Of prague: clients in a group.", TRAINING),
    Flag("--rate", "algorithm.rate", float, "Of gossip_async, a2cid2: averagings per step.", TRAINING),
    Flag("--form", "algorithm.form", str, "Of sgp: overlapped or synchronous.", TRAINING),
    Flag("--direction", "algorithm.direction", str, "Of sgp: along links both ways or one_way.", TRAINING),
    Flag("--order", "algorithm.order", str,
         "Of dsgd, pasgd, ldsgd: update_first or average_first; of quasi_global: update_first or swift.",
         TRAINING),
    Flag("--broadcast", "algorithm.broadcast", str, "Of swift: before or after the gradient.",
         TRAINING),
    Flag("--look-ahead", "algorithm.look_ahead", bool, "Of swift: publish where momentum leads.", TRAINING),
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
    Flag("--network", "engine.network", Path, "A file: how the network changes (docs/network.md).", NETWORK,
         _object),
    Flag("--engine", "engine.name", str, "{engines}.", TIME),
    Flag("--slowdown", "engine.costs.slowdowns", list[str], "CLIENT:FACTOR; may be given again.", TIME,
         _slowdowns),
    Flag("--costs", "engine.costs", Path, "A file: what things cost in virtual time (docs/runs.md).", TIME,
         _object),
    Flag("--devices", "engine.costs.devices", Path, "A file of device traces: speeds and links of clients.",
         TIME),
    Flag("--poison", "faults.poison", list[str],
         "A client that misbehaves: CLIENT:KIND of {poisons}; may be given again.", TIME, _poisons),
    Flag("--workers", "engine.workers", str, "Processes of a simulated run: auto or a number.", TIME,
         _workers),
    Flag("--restart-lost", "engine.live.restart_lost", bool, "Of local: start lost clients again.", TIME),
    Flag("--barrier", "engine.barrier", str, "Of algorithms in rounds: neighbours or global.", TIME),
    Flag("--seed", "seed", int, "Of everything that is random.", OTHER),
    Flag("--facts", "record.facts", str, "on, or off: write nothing for watch and dashboard.", OTHER,
         _switch),
    Flag("--track", "trackers", list[str], "{trackers}: also record there; may be given again.", OTHER),
)  # fmt: skip


def shown_defaults() -> dict[str, str]:
    """What help says of the default of each option, by its parameter: one of all recipes, or the recipe's."""
    from swiftfl.experiment.recipes import RECIPES

    trees = [make().model_dump(mode="json") for make in RECIPES.values()]
    found = {}
    for flag in FLAGS:
        values = [_inside(tree, flag.key) for tree in trees]
        if any(value != values[0] for value in values):
            found[flag.parameter] = " (default: the recipe's)"
        elif flag.read is _switch:
            found[flag.parameter] = f" (default: {'on' if values[0] else 'off'})"
        elif isinstance(values[0], str | int | float):
            found[flag.parameter] = f" (default: {values[0]})"
    return found


def _inside(tree: Mapping[str, Any], key: str) -> Any:
    """The value of a setting; None where it is an option of something else."""
    value: Any = tree
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


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
        found, names = by_name(key, value, f"--set {key}")
        for both in found.keys() & changes.keys():
            raise UserError(f"{typed[both]} and --set {key} say the same: give one of them")
        changes |= found
        typed |= names
    return changes, typed


def collect_some(given: Mapping[str, Any]) -> tuple[Changes, Typed]:
    """The changes of a command that has only some of the options."""
    return collect({flag.parameter: given.get(flag.parameter) for flag in FLAGS}, [])


def by_name(key: str, text: str, name: str) -> tuple[Changes, Typed]:
    """The change of a setting by its dotted name, or by the name of its option; `name` is for errors."""
    flag, value = _BY_NAME.get(key.replace("-", "_")), _plain(text)
    if flag is None or isinstance(value, dict):
        return {key: value}, {key: name}
    if flag.read is None:
        return {flag.key: value}, {flag.key: name}
    found = flag.read(
        [text] if flag.type == list[str] else Path(text) if flag.type is Path else text, flag.key
    )
    return found, dict.fromkeys(found, name)


_BY_NAME = {flag.parameter: flag for flag in FLAGS}


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
