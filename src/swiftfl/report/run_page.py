"""`report.html`: the views of one run, or of several beside each other, as one file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from swiftfl.files import write_atomically
from swiftfl.report.bundle import bundled_page
from swiftfl.report.embedded import embedded
from swiftfl.views.run import RunView


def write_run_page(path: Path, runs: Sequence[RunView]) -> Path:
    """Write the page of these runs; where it is."""
    title = runs[0].name if len(runs) == 1 else f"comparison of {len(runs)} runs"
    return write_page(path, title, embedded(runs))


def write_page(path: Path, title: str, data: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, bundled_page(title, data))
    return path
