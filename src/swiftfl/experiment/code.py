"""The user's own code that a run is made of: which files, by digest, and whether they are still the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from swiftfl.errors import UserError
from swiftfl.experiment.config import Config
from swiftfl.experiment.source import digest_of, load_module, reference, short_digest

Sources = dict[str, dict[str, str]]
"""By absolute path: what the user `said`, and the SHA-256 `digest` of the file."""


def code_of(config: Config) -> Sources:
    """The files of the user's own that a configuration refers to, as they were loaded."""
    found: Sources = {}
    for where in _modules(config):
        loaded = load_module(where)
        for number, (file, digest) in enumerate(loaded.digests.items()):
            before = config.sources.get(file)
            said = loaded.said if number == 0 else Path(file).name
            found[file] = {"said": said if before is None else before.said, "digest": digest}
    return found


def _modules(config: Config) -> list[str]:
    names = [config.experiment, config.data.dataset, config.model.name, config.model.loss]
    names += [config.algorithm.name, *config.evaluation.metrics]
    said = [reference(name) for name in names if name is not None]
    return list(dict.fromkeys([*config.imports, *(found.where for found in said if found is not None)]))


def changes_of_code(config: Config) -> list[str]:
    """What differs from the files that are recorded in a configuration, one sentence each."""
    now = code_of(config)
    found = []
    for file, recorded in config.sources.items():
        digest = now[file]["digest"] if file in now else digest_of(Path(file))
        if digest != recorded.digest:
            then, here = short_digest(recorded.digest), short_digest(digest)
            found.append(f"{file} was changed after the run began (its SHA-256 was {then} and is {here})")
    return found


def refuse_changed_code(config: Config, accept: bool = False) -> list[str]:
    """Refuse to go on with other code than that of the run, unless that is accepted; what has changed."""
    changes = changes_of_code(config)
    if changes and not accept:
        raise UserError(f"{changes[0]}: undo the change, or go on with it as it is: --accept-changes")
    return changes


def refuse_other_code(of_first: Mapping[str, Any], config: Config) -> None:
    """Refuse a run whose processes have different files; `of_first` are those of the first process."""
    for file, mine in code_of(config).items():
        first = of_first.get(file, {}).get("digest", "missing")
        if mine["digest"] != first:
            raise UserError(
                f"{file} differs between the hosts of this job (SHA-256 {short_digest(first)} on the first, "
                f"{short_digest(mine['digest'])} here): copy it"
            )
