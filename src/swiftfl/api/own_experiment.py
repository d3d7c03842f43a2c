"""Experiments of the user's own by reference: a function that returns the arguments of `swiftfl.train`.

`swiftfl run mine.py:experiment` calls it, and so do `swiftfl resume` and `swiftfl replay` for the objects of
a run that it began; under MPI every rank does. So it must return the same each time.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from swiftfl.api.arguments import read_arguments
from swiftfl.api.chosen import Arguments
from swiftfl.errors import UserError
from swiftfl.experiment.code import refuse_changed_code
from swiftfl.experiment.config import Config, parse
from swiftfl.experiment.given import Given
from swiftfl.experiment.own import users_code
from swiftfl.experiment.source import Loaded, Reference, full_name, load, load_module, reference, refresh
from swiftfl.record import RunFolder
from swiftfl.registry import suggestion

_NAMES = ("model", "train", "loss", "algorithm")
"""Arguments that may be references themselves."""
_ELSEWHERE = {
    "out": "say --out on the command line",
    "resume": "use swiftfl resume FOLDER",
    "progress": "the command line always shows it",
    "callbacks": "use --track, or swiftfl.train(callbacks=...) in Python",
}
_CALLED: dict[str, tuple[Loaded, Arguments]] = {}


def configuration_of(said: Reference) -> Config:
    """The configuration of an experiment as its file is now, with the names of the objects that it gives."""
    refresh(said.where, said.said)
    arguments = arguments_of(said)
    return arguments.given.described(arguments.config())


def objects_of(config: Config) -> Given | None:
    """The objects of the experiment that gave this configuration, as far as it still names them."""
    said = None if config.experiment is None else reference(config.experiment)
    return None if said is None else arguments_of(said).given.used_by(config)


def objects_of_run(folder: Path, accept_changes: bool = False) -> Given | None:
    """The objects of a recorded run, if its experiment is still the same code, or changes are accepted."""
    config = parse(RunFolder.open(folder).read_object("config.json"))
    refuse_changed_code(config, accept_changes)
    return objects_of(config)


def arguments_of(said: Reference) -> Arguments:
    """What the experiment returns, read as `swiftfl.train` reads it; once while its code is the same."""
    loaded = load_module(said.where, said.said)
    before, found = _CALLED.get(str(said), (None, None))
    if found is None or before is not loaded:
        found = _called(said, loaded)
        _CALLED[str(said)] = loaded, found
    return found


def _called(said: Reference, loaded: Loaded) -> Arguments:
    function = load(said)
    if not callable(function):
        raise UserError(
            f"{said} is a {type(function).__name__}; it must be a function that returns the arguments of "
            "swiftfl.train"
        )
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise UserError(f"{said} must work without arguments: {error}") from None
    except ValueError:  # built in, and does not tell
        pass
    with users_code(said):
        given = function()
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise UserError(
            f"{said} returned a {type(given).__name__}; it must return a dict, the arguments of swiftfl.train"
        )
    try:
        arguments = read_arguments(**_checked(said, given, Path(str(loaded.module.__file__)).parent))
    except UserError as error:
        raise UserError(f"{said.short}: {error}") from None
    arguments.choose("experiment", {"experiment": str(said)})
    return arguments


def _checked(said: Reference, given: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The arguments, all of them known; files that they refer to are beside the experiment's own."""
    parameters = inspect.signature(read_arguments).parameters
    for key in given:
        if key in _ELSEWHERE:
            raise UserError(f"{key!r} is no part of an experiment: {_ELSEWHERE[key]}")
        if key not in parameters:
            raise UserError(f"there is no argument {key!r}: {suggestion(key, parameters)}")
    for name, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty and name not in given:
            raise UserError(f"it returns no {name!r}, which swiftfl.train needs")
    full = {key: full_name(given[key], folder) for key in _NAMES if isinstance(given.get(key), str)}
    return {**given, **full}
