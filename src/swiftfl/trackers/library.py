"""What trackers have in common: libraries that may be missing, and what a resumed run has to find again."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path

from swiftfl.errors import UserError
from swiftfl.files import write_json
from swiftfl.record.table import flat
from swiftfl.trackers.base import Row, RunInfo

IDENTITIES = "trackers.json"
"""In the run folder: under which name each tracker knows the run."""
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)
_SHORTEST = 6  # a shorter value may be an ordinary word
_LOGIN = re.compile(r"(?<=://)[^/@\s]+@")


def require(library: str, tracker: str) -> None:
    """That a library is installed, without importing it.

    Raises:
        UserError: It is not; the message says how to install it.
    """
    if importlib.util.find_spec(library) is None:
        raise UserError(
            f"tracker {tracker} needs {library}, which is not installed: pip install 'swiftfl[{tracker}]'"
        )


def numbers(row: Row) -> dict[str, float]:
    """The finite numbers of a row by name, `metrics/f1` for those of an inner object.

    >>> numbers({"loss": 0.5, "accuracy": None, "metrics": {"f1": 1}, "lost": [3], "name": "x"})
    {'loss': 0.5, 'metrics/f1': 1.0}
    """
    found = {name: value for name, value in flat(row, "/").items() if isinstance(value, int | float)}
    return {name: float(value) for name, value in found.items() if math.isfinite(value)}


def remember(run: RunInfo, tracker: str, identity: str) -> None:
    """Keep the name under which a tracker knows the run, so that a resumed run goes on there."""
    if run.folder is not None:
        write_json(run.folder / IDENTITIES, {**_identities(run.folder), tracker: identity})


def recall(run: RunInfo, tracker: str) -> str | None:
    """The name that was kept when the run began, if it is resumed."""
    if run.folder is None or not run.resumed:
        return None
    return _identities(run.folder).get(tracker)


def _identities(folder: Path) -> dict[str, str]:
    try:
        found = json.loads((folder / IDENTITIES).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return dict(found) if isinstance(found, dict) else {}


def without_secrets(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """The text with stars in place of keys, tokens and passwords of the environment, and of logins in URLs.

    >>> without_secrets("401 for key abc123xyz at https://me:pw@host/", {"WANDB_API_KEY": "abc123xyz"})
    '401 for key *** at https://***@host/'
    """
    for name, value in environment.items():
        if _SECRET_NAME.search(name) and len(value) >= _SHORTEST:
            text = text.replace(value, "***")
    return _LOGIN.sub("***@", text)
