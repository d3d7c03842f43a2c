"""Whether two configurations describe the same run, and if not, in what they differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from swiftfl.errors import UserError
from swiftfl.experiment.build import resolve
from swiftfl.experiment.config import Config

_LONGEST = 60


def difference(recorded: Config, given: Config) -> str | None:
    """The first setting that differs, such as "seed was 3 and is 4".

    Where the data lies, how many processes compute, and what is written for whoever looks, does not matter.

    Whether the user's own code is the same is another question (`experiment/code.py`).
    """
    return _search(_essence(recorded), _essence(given), "")


def refuse_changes(recorded: Config, given: Config, file: Path) -> None:
    """Refuse to go on with other settings than those of the run that was saved."""
    changed = difference(recorded, given)
    if changed is not None:
        raise UserError(
            f"{file} was changed after the run began ({changed}): "
            "undo the change, or start a new run with it (swiftfl run CONFIG --out FOLDER)"
        )


def _essence(config: Config) -> dict[str, Any]:
    unlike: dict[str, Any] = {"data.folder": None, "sources": {}, "record": {}, "engine.workers": "auto"}
    return resolve(config).with_changes(unlike).model_dump(mode="json")


def _search(a: Any, b: Any, name: str) -> str | None:
    if isinstance(a, dict) and isinstance(b, dict):
        each = (_search(a.get(key), b.get(key), f"{name}.{key}") for key in {**a, **b})
        return next((found for found in each if found is not None), None)
    return None if a == b else f"{name[1:]} was {_short(a)} and is {_short(b)}"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
