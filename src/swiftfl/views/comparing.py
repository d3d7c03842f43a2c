"""Several runs beside each other: in which settings they differ."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from swiftfl.record.table import flat
from swiftfl.views.run import RunView

_NOT_SETTINGS = ("sources",)
_FOLDERS = re.compile(r"^(?:file:)?(?:~|[A-Za-z]:(?=[\\/])|(?=[\\/])).*[\\/](?=[^\\/])", re.DOTALL)
"""What stands before the name of a file that is given by its full path."""


def without_folders(value: Any) -> Any:
    """The same settings for whoever reads them elsewhere: of full paths the last name only, also as keys.

    >>> without_folders({"imports": ["/me/net.py"], "sources": {"~/a.py": 1}, "x": "C:/me/net.py:Net"})
    {'imports': ['net.py'], 'sources': {'a.py': 1}, 'x': 'net.py:Net'}
    >>> without_folders(["runs/mine", "https://example.org/a", "a / b", 0.5])
    ['runs/mine', 'https://example.org/a', 'a / b', 0.5]
    """
    if isinstance(value, str):
        return _FOLDERS.sub("", value)
    if isinstance(value, dict):
        return {without_folders(key): without_folders(inner) for key, inner in value.items()}
    return [without_folders(inner) for inner in value] if isinstance(value, list) else value


def differences(configs: Sequence[dict[str, Any] | None]) -> list[dict[str, Any]]:
    """The settings, by dotted name, that are not the same in all; one that a run does not have is None.

    >>> differences([{"seed": 1, "engine": {"name": "virtual"}}, {"seed": 2, "engine": {"name": "virtual"}}])
    [{'key': 'seed', 'values': [1, 2]}]
    """
    trees = [flat({k: v for k, v in (config or {}).items() if k not in _NOT_SETTINGS}) for config in configs]
    keys = dict.fromkeys(key for tree in trees for key in tree)
    rows = [{"key": key, "values": [tree.get(key) for tree in trees]} for key in keys]
    return [row for row in rows if any(value != row["values"][0] for value in row["values"])]


def compare(runs: Sequence[RunView]) -> dict[str, Any]:
    """The runs, with their summaries, and the settings in which they differ."""
    about = [run.about_files() for run in runs]
    cards = [{**run.card(), "summary": files["summary"]} for run, files in zip(runs, about, strict=True)]
    return {"runs": cards, "differences": differences([files["config"] for files in about])}
