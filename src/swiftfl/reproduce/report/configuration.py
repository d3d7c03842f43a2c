"""The configurations of an experiment's runs: what they share, and what they differ in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from swiftfl.report.numbers import Cell
from swiftfl.report.table import GROUP, Table
from swiftfl.reproduce.report.recorded import RecordedExperiment

_SAID_ELSEWHERE = ("seed",)


def configuration_tables(recorded: RecordedExperiment) -> list[Table]:
    """The common settings, and those that change from case to case."""
    configs: dict[tuple[str, str], dict[str, str]] = {}
    for run in recorded.runs:
        if run.config and (run.group, run.method) not in configs:
            configs[run.group, run.method] = flat(run.config)
    if not configs:
        return []
    names = sorted({name for config in configs.values() for name in config} - set(_SAID_ELSEWHERE))
    values = {name: [config.get(name, "") for config in configs.values()] for name in names}
    common = [name for name in names if len(set(values[name])) == 1]
    varying = [name for name in names if name not in common]
    same = Table(
        f"{recorded.name}-configuration",
        "Settings of all runs",
        ("setting", "value"),
        [[name, values[name][0]] for name in common],
    )
    rows: list[list[Cell]] = []
    for (group, method), config in configs.items():
        named = (recorded.groups.get(group, group), recorded.methods.get(method, method))
        rows.append([*named, *(config.get(name, "") for name in varying)])
    differing = Table(f"{recorded.name}-cases", "Settings that differ", (GROUP, "method", *varying), rows)
    return [same, differing] if varying else [same]


def flat(tree: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """By dotted name, as `swiftfl run` and `with_changes` take them.

    >>> flat({"engine": {"epochs": 8, "costs": {}}, "seed": 0})
    {'engine.epochs': '8', 'engine.costs': '{}', 'seed': '0'}
    """
    named: dict[str, str] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            named |= flat(value, f"{before}{name}.")
        else:
            named[f"{before}{name}"] = value if isinstance(value, str) else json.dumps(value)
    return named
