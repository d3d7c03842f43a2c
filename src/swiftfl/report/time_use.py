"""Pictures of how clients spend their time: bars per method, and timelines of who does what when."""

from __future__ import annotations

from functools import partial
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from swiftfl.report.figures import PARTS, WIDTH, Picture, panel
from swiftfl.report.recorded import Recorded
from swiftfl.report.times import here, in_paper

MOST_INTERVALS = 5000
"""Of one timeline; a longer one is cut, and its axis says where."""


def bar_pictures(recorded: Recorded) -> list[Picture]:
    return [
        Picture(
            f"{recorded.name}-parts-{group}",
            f"{label}: seconds per epoch, printed in the paper (hatched; waiting was not printed) and "
            "predicted here.",
            partial(_bars, recorded, group),
        )
        for group, label in recorded.groups.items()
        if recorded.predicted.get(group)
    ]


def _bars(recorded: Recorded, group: str) -> Figure:
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
    axes.set_yticks(range(len(methods)), [recorded.methods[m] for m in methods])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    handles = [Patch(color=colour, label=part) for part, colour in PARTS.items()]
    handles.append(Patch(facecolor="#888888", hatch="////", edgecolor="white", label="paper", linewidth=0))
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=8.5)
    return figure


def timeline_pictures(recorded: Recorded) -> list[Picture]:
    return [
        Picture(
            f"{recorded.name}-timeline-{group}",
            f"{recorded.groups.get(group, group)}: what each client does at first; a row is a client.",
            partial(_timelines, recorded, group, methods),
        )
        for group, methods in recorded.timelines.items()
        if methods
    ]


def _timelines(recorded: Recorded, group: str, timelines: dict[str, Any]) -> Figure:
    """Methods below each other, over the same time."""
    methods = [m for m in recorded.methods if m in timelines]
    figure = Figure(figsize=(WIDTH, 0.9 + 0.95 * len(methods)), layout="constrained")
    panels = figure.subplots(len(methods), 1, sharex=True, squeeze=False)[:, 0]
    longest = 0.0
    for method, axes in zip(methods, panels, strict=True):
        timeline = timelines[method]
        intervals = sorted(timeline["intervals"], key=lambda i: float(i[2]))[:MOST_INTERVALS]
        longest = max([longest, *(float(i[3]) for i in intervals)])
        for part, colour in PARTS.items():
            for client in range(timeline["clients"]):
                bars = [(s, e - s) for who, what, s, e in intervals if who == client and what == part]
                if bars:
                    axes.broken_barh(bars, (client, 0.82), facecolors=colour, lw=0, rasterized=True)
        axes.set_title(recorded.methods[method], loc="left", fontsize=9, pad=2)
        axes.set(ylim=(timeline["clients"], -0.2), yticks=[])
        axes.grid(visible=False)
        axes.spines["left"].set_visible(False)
    panels[-1].set_xlabel(recorded.seconds if recorded.seconds.startswith("virtual") else "seconds")
    panels[-1].set_xlim(0, longest)
    figure.suptitle(recorded.groups.get(group, group), fontsize=10, x=0.01, ha="left")
    handles = [Patch(color=colour, label=part) for part, colour in PARTS.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=8.5)
    return figure
