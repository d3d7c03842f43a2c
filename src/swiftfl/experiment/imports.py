"""Modules of one's own that register algorithms, topologies, metrics and so on."""

from __future__ import annotations

from collections.abc import Iterable

from swiftfl.experiment.source import full_path, refresh


def import_modules(names: Iterable[str]) -> None:
    """Import each, once: a module's dotted name, or the path of a .py file."""
    for name in names:
        refresh(name)


def recorded_names(names: Iterable[str]) -> list[str]:
    """As a configuration records them: paths in full, so that a run can be resumed from elsewhere."""
    return [full_path(name) for name in names]
