"""Own models, datasets, losses, metrics and algorithms by reference: "mine.py:Net" where a name may stand.

This is the one place where a reference becomes an entry of a registry. A function or class of the user's own
is called by the names of its parameters: what a run knows is given to those that ask for it, all others are
options of the configuration, as far as their defaults can be written down.

    model      shape, classes                   -> a torch module (or a module itself)
    dataset    folder                           -> a Dataset, (train, test), or the arguments of as_dataset
    algorithm  context, or rule, topology, seed -> an algorithm
    loss       a function of (outputs, labels) or (model, batch)
    metric     a function of (outputs, labels)
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import json
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError
from torch import Tensor, nn

from swiftfl.algorithm import Algorithm
from swiftfl.algorithms import ALGORITHMS, Context
from swiftfl.algorithms.registry import AlgorithmEntry
from swiftfl.data import Dataset, as_dataset
from swiftfl.data.registry import DATASETS
from swiftfl.errors import UserError
from swiftfl.experiment.options import COMMON
from swiftfl.experiment.source import (
    Reference,
    folder_first,
    full_name,
    full_path,
    load,
    load_module,
    one_line,
    reference,
    refresh,
)
from swiftfl.registry import suggestion
from swiftfl.verbs import Verb
from swiftfl.workload.losses import LOSSES, Loss
from swiftfl.workload.metrics import METRICS, Metric
from swiftfl.workload.models import MODELS

T = TypeVar("T")
_PLACES = (
    ("data", "dataset"),
    ("model", "name"),
    ("model", "loss"),
    ("algorithm", "name"),
    ("evaluation", "metrics"),
)
"""Where a configuration has names that may be references."""
_OF_ALGORITHMS = ("step", "rule", "in_rounds", "name")


def own_name(name: str) -> str:
    """A name as a configuration records it: of references the file in full, loaded as it is now."""
    said = reference(name)
    if said is None:
        return name
    refresh(said.where, said.said)
    return str(said)


def full_names(tree: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A configuration from a file of this folder, to which the files that it refers to are relative."""
    return _with_names(tree, lambda name: full_name(name, folder) if ":" in name else full_path(name, folder))


def found_again(tree: Mapping[str, Any]) -> dict[str, Any]:
    """A recorded configuration whose files are not where they were, but where they were said to be."""
    moved: dict[str, str] = {}
    sources = tree.get("sources")
    for file, about in sources.items() if isinstance(sources, Mapping) else ():
        said = about.get("said") if isinstance(about, Mapping) else None
        if isinstance(said, str) and not Path(file).is_file() and Path(said).is_file():
            moved[file] = str(Path(said).absolute())
    if not moved:
        return dict(tree)

    def renamed(name: str) -> str:
        file, colon, rest = name.rpartition(":")
        return f"{moved.get(file, file)}{colon}{rest}" if colon else moved.get(name, name)

    there = {moved.get(file, file): about for file, about in tree["sources"].items()}
    return {**_with_names(tree, renamed), "sources": there}


def _with_names(tree: Mapping[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    """A configuration with other names in the places where a reference may stand."""

    def changed(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [changed(one) for one in value]
        return change(value) if isinstance(value, str) else value

    found = dict(tree)
    for key in ("imports", "experiment"):
        if key in found:
            found[key] = changed(found[key])
    for section, key in _PLACES:
        inside = found.get(section)
        if isinstance(inside, Mapping) and key in inside:
            found[section] = {**inside, key: changed(inside[key])}
    return found


def metrics_by_name(names: Sequence[str]) -> dict[str, str]:
    """What rows and tables call these metrics: a reference by what stands after its colon.

    >>> metrics_by_name(["accuracy", "mine.py:worst_class"])
    {'accuracy': 'accuracy', 'worst_class': 'mine.py:worst_class'}
    """
    found: dict[str, str] = {}
    for name in names:
        key = name.rpartition(":")[2] if reference(name) is not None else name
        if found.setdefault(key, name) != name:
            raise UserError(f"metrics {found[key]} and {name} have the same name: rename one")
    return found


# --- calling what the user wrote -------------------------------------------------------------------


@contextlib.contextmanager
def users_code(said: Reference) -> Iterator[None]:
    """Around a call of the user's own: its folder is searched first, what it raises is one line."""
    file = load_module(said.where).module.__file__
    path = None if file is None else Path(file)
    with one_line(f"{said.short} failed", path), folder_first((path or Path.cwd()).parent):
        yield


def _adapted(
    said: Reference,
    target: Callable[..., Any],
    check: Callable[[Any], T],
    positional: Sequence[str] = (),
    supplied: Mapping[str, Callable[..., object]] = MappingProxyType({}),
    hidden: Sequence[str] = (),
) -> Callable[..., T]:
    """A function of the `positional` arguments of its kind and of options, whose signature says so.

    `supplied` tells from the former what the user's function is given where it has such parameters; those
    that are `hidden` keep their defaults.
    """
    parameters = _parameters(said, target)
    wanted = {name: supply for name, supply in supplied.items() if name in parameters}
    hints = _hints(target)
    options = [
        p.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=_checkable(hints.get(name, Any)))
        for name, p in parameters.items()
        if name not in supplied and name not in hidden and _can_be_recorded(p)
    ]

    def call(*values: object, **chosen: object) -> T:
        with users_code(said):
            made = target(**{name: supply(*values) for name, supply in wanted.items()}, **chosen)
        return check(made)

    call.__name__ = call.__qualname__ = said.name
    call.__module__, call.__doc__ = said.where, target.__doc__
    call.__annotations__ = {p.name: p.annotation for p in options}
    call.__annotations__["return"] = target if isinstance(target, type) else hints.get("return", Any)
    first = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in positional]
    call.__signature__ = inspect.Signature([*first, *options])  # type: ignore[attr-defined]
    return call


def _parameters(said: Reference, target: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    try:
        found = inspect.signature(target).parameters
    except (TypeError, ValueError):
        raise UserError(f"{said}: it does not say which parameters it has; wrap it in a function") from None
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name: p for name, p in found.items() if p.kind in by_name}


def _hints(target: Callable[..., Any]) -> dict[str, Any]:
    described = target.__init__ if isinstance(target, type) else target  # type: ignore[misc]
    try:
        return typing.get_type_hints(described, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError):  # types that exist for type checkers only
        return {}


def _checkable(hint: Any) -> Any:
    """The type of an option, or anything where values of a configuration cannot be checked by it."""
    try:
        TypeAdapter(hint)
    except (PydanticUserError, TypeError):
        return Any
    return hint


def _can_be_recorded(parameter: inspect.Parameter) -> bool:
    """A default that JSON cannot hold stays as it is: the parameter is no option."""
    if parameter.default is inspect.Parameter.empty:
        return True
    try:
        json.dumps(parameter.default)
    except (TypeError, ValueError):
        return False
    return True


def _function(said: Reference, kind: str) -> Callable[..., Any]:
    found = load(said)
    if not callable(found):
        raise UserError(f"{said} is a {type(found).__name__}, not a function or class that makes a {kind}")
    return found


# --- each kind -------------------------------------------------------------------------------------


def _model(said: Reference) -> Callable[..., nn.Module]:
    found = load(said)
    if isinstance(found, nn.Module):
        return lambda shape, classes: copy.deepcopy(found)

    def check(made: object) -> nn.Module:
        if isinstance(made, nn.Module):
            return made
        raise UserError(f"{said} returned a {type(made).__name__}, not a torch.nn.Module")

    supplied = {"shape": lambda shape, classes: shape, "classes": lambda shape, classes: classes}
    return _adapted(said, _function(said, "model"), check, ("shape", "classes"), supplied)


def _dataset(said: Reference) -> Callable[..., Dataset]:
    found = load(said)
    if not callable(found):
        return lambda: _as_dataset(found, said)
    return _adapted(said, found, lambda made: _as_dataset(made, said))


def _as_dataset(value: object, said: Reference) -> Dataset:
    if isinstance(value, Dataset):
        return value
    known = [name for name in inspect.signature(as_dataset).parameters if name != "name"]
    if isinstance(value, Mapping) and "train" in value:
        for key in value:
            if key not in known:
                raise UserError(f"{said} returned {key!r}, which no dataset has: {suggestion(key, known)}")
        return as_dataset(**{"name": said.short, **value})
    if isinstance(value, tuple) and len(value) == 2 and not any(map(_is_column, value)):
        return as_dataset(*value, name=said.short)
    raise UserError(
        f"{said} returned {_shown(value)}; it must return (train, test), each for example (inputs, labels), "
        "or a dict with train, test and other arguments of swiftfl.data.as_dataset"
    )


def _is_column(value: object) -> bool:
    return isinstance(value, Tensor | np.ndarray)


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(type(part).__name__ for part in value)})"
    return f"a {type(value).__name__}"


def _loss(said: Reference) -> Loss:
    found = _function(said, "loss")
    if isinstance(found, type):
        with users_code(said):
            made: Loss = found()
        return made
    return found


def _metric(said: Reference) -> Metric:
    found = _function(said, "number")
    if isinstance(found, type):
        raise UserError(f"{said} is a class; a metric is a function of (outputs, labels)")
    return found


def _algorithm(said: Reference) -> AlgorithmEntry:
    target = _function(said, "algorithm")

    def check(made: Any) -> Algorithm[Verb]:
        missing = [part for part in _OF_ALGORITHMS if not hasattr(made, part)]
        if missing:
            raise UserError(
                f"{said} made a {type(made).__name__}, which is no algorithm: it has no {', '.join(missing)} "
                "(docs/verbs.md)"
            )
        algorithm: Algorithm[Verb] = made
        return algorithm

    make = _adapted(said, target, check, ("context",), _FROM_CONTEXT, hidden=COMMON)
    for known in ALGORITHMS.values():
        if known.make is target:  # it is registered under a name, too
            return replace(known, name=str(said), make=make)
    entry = AlgorithmEntry(str(said), make, "metropolis")
    usual = "ccs" if entry.in_rounds is False else "metropolis"
    return replace(entry, weights=getattr(target, "weights", usual))


_FROM_CONTEXT: dict[str, Callable[[Context], object]] = {
    "context": lambda context: context,
    "rule": lambda context: context.rule,
    "topology": lambda context: context.topology,
    "seed": lambda context: context.seed,
}


def _looked_up(make: Callable[[Reference], T]) -> Callable[[str], T | None]:
    def look_up(name: str) -> T | None:
        said = reference(name)
        return None if said is None else make(said)

    return look_up


MODELS.look_up_with(_looked_up(_model))
DATASETS.look_up_with(_looked_up(_dataset))
LOSSES.look_up_with(_looked_up(_loss))
METRICS.look_up_with(_looked_up(_metric))
ALGORITHMS.look_up_with(_looked_up(_algorithm))
