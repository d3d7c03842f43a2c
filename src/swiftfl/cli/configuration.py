"""From what was typed to a configuration: a recipe, a file or a recorded run, and what options change."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swiftfl.cli.flags import Changes, Typed, as_typed
from swiftfl.errors import UserError
from swiftfl.experiment.imports import recorded_names
from swiftfl.experiment.source import reference
from swiftfl.experiment.used import check_engine, check_used
from swiftfl.settings import SettingError

if TYPE_CHECKING:
    from swiftfl.experiment.config import Config


def changed(config: Config, changes: Changes, typed: Typed, imports: list[str] | None = None) -> Config:
    """The configuration with what was typed; errors name what was typed."""
    changes = dict(changes)
    if imports:
        changes["imports"] = list(dict.fromkeys([*config.imports, *recorded_names(imports)]))
    if "engine.iterations" in changes and "engine.epochs" not in changes:
        changes["engine.epochs"] = None
    check_engine(changes.get("engine.name", config.engine.name), typed)
    try:
        config = config.with_changes(_fit_ranks(config, changes))
    except SettingError as error:
        raise as_typed(error, typed) from None
    check_used(config, typed)
    return config


def configuration(recipe: str) -> Config:
    """What a command starts from: a recipe, a file, an experiment of one's own, or a finished run."""
    from swiftfl.experiment.config import check_named_files, parse
    from swiftfl.experiment.config_file import SUFFIXES, read_config_file
    from swiftfl.experiment.own import full_names
    from swiftfl.experiment.recipes import RECIPES

    if not recipe:  # which is the working directory as a path
        raise UserError(f"'' is neither a recipe ({', '.join(RECIPES)}) nor a file or folder")
    said = reference(recipe)
    if said is not None:
        from swiftfl.api.own_experiment import configuration_of

        return configuration_of(said)
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
    elif path.suffix not in SUFFIXES:
        if path.exists():
            endings = ", ".join(SUFFIXES)
            raise UserError(
                f"{recipe} is neither a recipe ({', '.join(RECIPES)}) nor a file ending in {endings}"
            )
        return RECIPES[recipe]()
    file = read_config_file(path)
    try:
        config = parse(full_names(file.tree, path.parent))
        check_named_files(config)
    except UserError as error:
        raise file.placed(error) from None
    return config


def _fit_ranks(config: Config, changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Under MPI there are as many clients as ranks, unless the request says how many."""
    if changes.get("engine.name", config.engine.name) != "mpi":
        return changes
    from swiftfl.transports.mpi import world

    asked = {"topology.clients", "topology.edges"}.intersection(changes) or config.topology.edges
    return changes if asked or world().size == 1 else {**changes, "topology.clients": world().size}
