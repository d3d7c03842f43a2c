"""What can be chosen by name, from the registries: for help texts and `swiftfl list`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
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


class CommandWithNames(TyperCommand):
    """A command in whose help {algorithms}, {models} and so on are replaced by what there is."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        names = {kind: ", ".join(forms()) for kind, (_, forms) in kinds().items()}
        for parameter in self.params:
            text = getattr(parameter, "help", None)
            if text and "{" in text:
                parameter.help = text.format(**names)  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


def kinds() -> dict[str, tuple[Mapping[str, Any], Callable[[], list[str]]]]:
    """Each kind of thing: its registry, and how its names are written."""
    from swiftfl.algorithms import ALGORITHMS
    from swiftfl.data.parse import PARTITIONS, forms
    from swiftfl.data.registry import DATASETS
    from swiftfl.experiment.recipes import RECIPES
    from swiftfl.graph.methods import METHODS, method_names
    from swiftfl.graph.registry import TOPOLOGIES
    from swiftfl.rules import RULES
    from swiftfl.transports.registry import CODECS, TRANSPORTS
    from swiftfl.workload.metrics import METRICS
    from swiftfl.workload.models import MODELS

    def plain(registry: Mapping[str, Any]) -> tuple[Mapping[str, Any], Callable[[], list[str]]]:
        return registry, lambda: list(registry)

    return {
        "recipes": plain(RECIPES),
        "algorithms": plain(ALGORITHMS),
        "rules": plain(RULES),
        "topologies": plain(TOPOLOGIES),
        "weights": (METHODS, method_names),
        "datasets": plain(DATASETS),
        "partitions": (PARTITIONS, forms),
        "models": plain(MODELS),
        "metrics": plain(METRICS),
        "codecs": plain(CODECS),
        "transports": plain(TRANSPORTS),
    }


def list_names(
    kind: Annotated[str | None, typer.Argument(help="algorithms, models and so on (default: all).")] = None,
    imports: Imports = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """List what can be chosen by name, with options and descriptions."""
    found = kinds()
    if kind is not None and kind not in found:
        raise UserError(f"there is nothing called {kind!r} to list: {suggestion(kind, found)}")
    chosen = [kind] if kind is not None else list(found)
    if as_json:
        print(json.dumps({kind: found[kind][1]() for kind in chosen}))
        return
    for number, name in enumerate(chosen):
        if len(chosen) > 1:
            print(f"{'' if number == 0 else chr(10)}{name}")
        _print_kind(*found[name], indent="  " if len(chosen) > 1 else "")


def _print_kind(registry: Mapping[str, Any], forms: Callable[[], list[str]], indent: str) -> None:
    for form in forms():
        entry = registry.get(form.partition(":")[0])
        make = getattr(entry, "make", entry)
        summary = (getattr(make, "__doc__", None) or "").strip().splitlines()
        options = ", ".join(_shown(option) for option in _options(make).values())
        print(f"{indent}{form}{f' ({options})' if options else ''}")
        if summary:
            print(f"{indent}    {summary[0]}")


def _options(make: object) -> dict[str, Option]:
    return options_of(make) if inspect.isfunction(make) else {}


def _shown(option: Option) -> str:
    return option.name if option.required else f"{option.name}={json.dumps(option.default, default=str)}"
