"""What can be chosen by name, from the registries: for help texts and `swiftfl list`."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from swiftfl.errors import UserError
from swiftfl.registry import Option, options_of, suggestion

IMPORT_HELP = "A module or .py file that registers things of your own; may be given again."


def import_now(names: list[str] | None) -> list[str]:
    """Import what `--import` names while the command line is read, so that help texts list it too."""
    from swiftfl.experiment.imports import import_modules

    import_modules(names or [])
    return names or []


Imports = Annotated[
    list[str] | None,
    typer.Option("--import", metavar="MODULE", help=IMPORT_HELP, is_eager=True, callback=import_now),
]

AcceptChanges = Annotated[
    bool, typer.Option("--accept-changes", help="Go on although code of your own has changed since then.")
]


class CommandWithNames(TyperCommand):
    """A command in whose help {algorithms}, {models} and so on are replaced by what there is."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from swiftfl.cli.flags import shown_defaults

        names = {name: ", ".join(kind.forms) for name, kind in kinds().items()}
        defaults = shown_defaults()
        for parameter in self.params:
            text = getattr(parameter, "help", None) or ""
            if "{" in text:
                text = text.format(**names)
            if "default" not in text and not getattr(parameter, "show_default", True):
                text += defaults.get(parameter.name or "", "")
            parameter.help = text  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


@dataclass(frozen=True)
class Kind:
    """What there is of one kind, by name, with the options of each."""

    entries: Mapping[str, Any]
    options: Callable[[str], dict[str, Option]] = field(default=lambda name: {})
    written: Callable[[str], str] = str
    """How a name is written on the command line."""

    @property
    def forms(self) -> list[str]:
        return [self.written(name) for name in self.entries]

    def description(self, name: str) -> str:
        """The first sentences of an entry's docstring."""
        entry = self.entries[name]
        text = getattr(entry, "make", entry).__doc__ or ""
        return " ".join(text.strip().partition("\n\n")[0].split())


class _Described:
    """An entry that is only a name and a description."""

    def __init__(self, text: str) -> None:
        self.__doc__ = text


_ENGINES = {
    "virtual": "Virtual time on this machine: clients, links and slowdowns cost what a configuration says.",
    "sampled": "Algorithm 1 as printed: at each iteration one client, drawn by its influence, acts.",
    "local": "Real processes on this machine, one per client, over shared memory.",
    "mpi": "Real processes under mpiexec, one per rank, on one machine or a cluster.",
}


def kinds() -> dict[str, Kind]:
    """Everything that can be chosen by name."""
    from swiftfl.algorithms import ALGORITHMS
    from swiftfl.data.parse import PARTITIONS, form
    from swiftfl.data.registry import DATASETS, dataset_options
    from swiftfl.experiment.recipes import RECIPES
    from swiftfl.graph.methods import METHODS
    from swiftfl.graph.neighbourhood import neighbourhood_uniform
    from swiftfl.graph.registry import TOPOLOGIES, topology_options
    from swiftfl.mixing import MIXINGS
    from swiftfl.rules import RULES
    from swiftfl.schedule import SCHEDULES
    from swiftfl.trackers.registry import TRACKERS
    from swiftfl.transports.poison import POISONS
    from swiftfl.transports.registry import CODECS, TRANSPORTS
    from swiftfl.workload.losses import LOSSES
    from swiftfl.workload.metrics import METRICS
    from swiftfl.workload.models import MODELS, model_options

    return {
        "recipes": Kind(RECIPES),
        "algorithms": Kind(ALGORITHMS, lambda name: options_of(ALGORITHMS[name].make)),
        "rules": Kind(RULES, lambda name: options_of(RULES[name])),
        "mixings": Kind(MIXINGS, lambda name: options_of(MIXINGS[name])),
        "schedules": Kind(SCHEDULES, lambda name: options_of(SCHEDULES[name])),
        "topologies": Kind(TOPOLOGIES, topology_options),
        "weights": Kind({**METHODS, "uniform": neighbourhood_uniform}),
        "datasets": Kind(DATASETS, dataset_options),
        "partitions": Kind(PARTITIONS, written=form),
        "models": Kind(MODELS, model_options),
        "losses": Kind(LOSSES),
        "metrics": Kind(METRICS),
        "engines": Kind({name: _Described(text) for name, text in _ENGINES.items()}),
        "codecs": Kind(CODECS, lambda name: options_of(CODECS[name])),
        "transports": Kind(TRANSPORTS),
        "trackers": Kind(TRACKERS),
        "poisons": Kind(POISONS, lambda name: options_of(POISONS[name])),
    }


def list_names(
    kind: Annotated[str | None, typer.Argument(help="algorithms, models and so on (default: all).")] = None,
    imports: Imports = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """List what can be chosen by name, with options and descriptions.

    swiftfl list

    swiftfl list algorithms --json
    """
    found = kinds()
    kind = "rules" if kind == "optimizers" else kind
    if kind is not None and kind not in found:
        raise UserError(f"there is nothing called {kind!r} to list: {suggestion(kind, found)}")
    chosen = found if kind is None else {kind: found[kind]}
    if as_json:
        print(json.dumps({name: kind.forms for name, kind in chosen.items()}))
        return
    for number, (name, one) in enumerate(chosen.items()):
        if len(chosen) > 1:
            print(f"{'' if number == 0 else chr(10)}{name}")
        _print_kind(one, indent="  " if len(chosen) > 1 else "")


def _print_kind(kind: Kind, indent: str) -> None:
    width = shutil.get_terminal_size().columns
    deeper = f"{indent}    "
    for name in kind.entries:
        options = ", ".join(_shown(option) for option in kind.options(name).values())
        heading = f"{kind.written(name)}{f' ({options})' if options else ''}"
        print(textwrap.fill(heading, width, initial_indent=indent, subsequent_indent=deeper + "  "))
        if description := kind.description(name):
            print(textwrap.fill(description, width, initial_indent=deeper, subsequent_indent=deeper))


def _shown(option: Option) -> str:
    if option.required or option.default is None:
        return option.name
    return f"{option.name}={json.dumps(option.default, default=str)}"
