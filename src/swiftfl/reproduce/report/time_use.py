"""Pictures of how clients spend their time: bars per method, and timelines of who does what when."""

from __future__ import annotations

import json
import textwrap
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from swiftfl.report.figures import PARTS, WIDTH, Picture, named, panel
from swiftfl.reproduce.report.recorded import RecordedExperiment
from swiftfl.reproduce.report.times import here, in_paper, merged

MOST_INTERVALS = 5000
"""Of one timeline; a longer one is cut, and its axis says where."""


def bar_pictures(recorded: RecordedExperiment) -> list[Picture]:
    return [
        Picture(
            f"{recorded.name}-parts-{group}",
            f"{label}: seconds per epoch, printed in the paper (hatched; waiting was not printed) and "
            "predicted here.",
            partial(_bars, recorded, group),
        )
        for group, label in merged(recorded).items()
    ]


def _bars(recorded: RecordedExperiment, group: str) -> Figure:
    methods = [m for m in recorded.methods if recorded.times(group, m)]
    height = 1.1 + 0.42 * len(methods)
    figure, axes = panel("seconds per epoch", "", recorded.groups[group], height)
    for row, method in enumerate(methods):
        paper, ours = in_paper(recorded.name, group, method), here(recorded, group, method)
        for shift, times, hatch in ((-0.19, paper, "////"), (0.19, ours, "")):
            left = 0.0
            for part, colour in PARTS.items():
                seconds = getattr(times, part) or 0.0
                axes.barh(
                    row + shift,
                    seconds,
                    0.34,
                    left,
                    color=colour,
                    hatch=hatch,
                    edgecolor="white",
                    linewidth=0,
                )
                left += seconds
    axes.set_yticks(range(len(methods)), [_wrapped(recorded.methods[m]) for m in methods])
    axes.invert_yaxis()
    axes.margins(x=0.05)
    axes.grid(axis="y", visible=False)
    handles = [Patch(color=colour, label=part) for part, colour in PARTS.items()]
    handles.append(Patch(facecolor="#888888", hatch="////", edgecolor="white", label="paper", linewidth=0))
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=8.5)
    return figure


def _wrapped(label: str) -> str:
    """A long name in several lines, so that the bars keep their room."""
    return "\n".join(named(line) for line in textwrap.wrap(label, 20))


def timeline_pictures(recorded: RecordedExperiment) -> list[Picture]:
    """Groups in which the same happens share a picture."""
    alike: dict[str, list[str]] = {}
    for group, methods in recorded.timelines.items():
        if methods:
            alike.setdefault(json.dumps(methods), []).append(group)
    labels = {groups[0]: ", ".join(recorded.groups.get(g, g) for g in groups) for groups in alike.values()}
    return [
        Picture(
            f"{recorded.name}-timeline-{group}",
            f"{label}: the beginning of a run as predicted; a row is a client, with its number.",
            partial(_timelines, recorded, recorded.timelines[group]),
        )
        for group, label in labels.items()
    ]


def _timelines(recorded: RecordedExperiment, timelines: dict[str, Any]) -> Figure:
    """Methods below each other, over the same time."""
    methods = [m for m in recorded.methods if m in timelines]
    figure = Figure(figsize=(WIDTH, 0.8 + 0.95 * len(methods)), layout="constrained")
    panels = figure.subplots(len(methods), 1, sharex=True, squeeze=False)[:, 0]
    for method, axes in zip(methods, panels, strict=True):
        intervals = sorted(timelines[method]["intervals"], key=lambda i: float(i[2]))[:MOST_INTERVALS]
        _days(axes, intervals)
        axes.set_title(named(recorded.methods[method]), loc="left", fontsize=9, pad=2)
    panels[-1].set_xlabel("virtual seconds")
    panels[-1].set_xlim(0, max((timelines[m]["seconds"] for m in methods), default=1.0))
    handles = [Patch(color=colour, label=part) for part, colour in PARTS.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=8.5)
    return figure


def _days(axes: Axes, intervals: list[Any]) -> None:
    """What each client of one method does when; long ones are pixels inside the SVG, to keep it small."""
    clients = sorted({interval[0] for interval in intervals})
    row = {client: k for k, client in enumerate(clients)}
    for part, colour in PARTS.items():
        boxes = [
            [(start, row[who]), (start, row[who] + 0.86), (end, row[who] + 0.86), (end, row[who])]
            for who, what, start, end in intervals
            if what == part
        ]
        axes.add_collection(PolyCollection(boxes, facecolors=colour, lw=0, rasterized=len(intervals) > 200))
    few = len(clients) <= 10
    axes.set_yticks(
        [k + 0.43 for k in range(len(clients))] if few else [], clients if few else [], fontsize=6
    )
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(clients), -0.1)
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)
