"""Pictures of who is connected with whom, and of who holds which labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from swiftfl.data.picture import draw_histogram
from swiftfl.graph.drawing import draw
from swiftfl.graph.topology import Topology
from swiftfl.report.figures import embedded
from swiftfl.reproduce.report.recorded import RecordedExperiment


def topology_figures(recorded: RecordedExperiment, folder: Path) -> list[str]:
    """Each network once, even if several groups share it."""
    folder.mkdir(parents=True, exist_ok=True)
    groups: dict[Topology, list[str]] = {}
    for group, described in recorded.about.get("topologies", {}).items():
        groups.setdefault(Topology(described["clients"], described["edges"]), []).append(group)
    parts = []
    for topology, sharing in groups.items():
        name = f"{recorded.name}-topology-{sharing[0]}"
        title = f"{topology.n} clients, {topology.m} edges"
        for suffix in ("svg", "png"):
            draw(topology, None, folder / f"{name}.{suffix}", title)
        parts.append(embedded(folder / f"{name}.svg", f"{_named(recorded, sharing)}: {title}."))
    return parts


def histogram_figures(recorded: RecordedExperiment, folder: Path) -> list[str]:
    """Each way of dealing out the data once: of the first seed."""
    folder.mkdir(parents=True, exist_ok=True)
    groups: dict[tuple[str, bytes], list[str]] = {}
    for group in recorded.groups:
        runs = sorted((r for r in recorded.runs if r.group == group), key=lambda run: run.seed)
        described = next((r.partition for r in runs if r.partition.get("histogram")), None)
        if described is not None:
            counts = np.array(described["histogram"], dtype=np.int64)
            groups.setdefault((described["partition"], counts.tobytes()), []).append(group)
            if len(groups[described["partition"], counts.tobytes()]) == 1:
                for suffix in ("svg", "png"):
                    file = folder / f"{recorded.name}-labels-{group}.{suffix}"
                    draw_histogram(file, str(described["partition"]), counts)
    return [
        embedded(
            folder / f"{recorded.name}-labels-{sharing[0]}.svg",
            f"{_named(recorded, sharing)}: who holds how many samples of which label ({partition}).",
        )
        for (partition, _), sharing in groups.items()
    ]


def _named(recorded: RecordedExperiment, groups: list[str]) -> str:
    """The groups' names, or that it is all of them."""
    if len(groups) == len(recorded.groups) > 1:
        return "all groups"
    return ", ".join(recorded.groups.get(group, group) for group in groups)
