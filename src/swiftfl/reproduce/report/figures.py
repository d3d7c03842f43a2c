"""Figures of an experiment: how clients spend their time, losses, sensitivity, networks and data."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from swiftfl.data.picture import draw_histogram
from swiftfl.files import plain_name
from swiftfl.graph.drawing import draw
from swiftfl.graph.topology import Topology
from swiftfl.palette import GROUND, PARTS, SOFT
from swiftfl.report import page
from swiftfl.report.figures import Picture, legend_below, look, markers_every, named, panel
from swiftfl.report.stream_figure import stream_figure
from swiftfl.reproduce.report.learning import final
from swiftfl.reproduce.report.recorded import RecordedExperiment, Run, number
from swiftfl.reproduce.report.times import REFERENCE, here, in_paper, merged, unit_of

MOST_POINTS = 60
"""Of one curve."""
_LOSSES = {
    "loss": "test loss",
    "mean_client_loss": "mean client test loss",
    "train_loss": "train loss",
}
_LOG_FROM = 10.0
"""From this ratio of the largest to the smallest loss on, the axis is logarithmic."""
_SHOWN_FIRST = ("swift_c0", REFERENCE)
_QUANTITIES = {"communication": "communication per epoch (s)", "epoch": "epoch (s)"}
Series = npt.NDArray[np.float64]


# --- how clients spend their time ---------------------------------------------------------------------


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
            for part, (colour, _) in PARTS.items():
                seconds = getattr(times, part) or 0.0
                axes.barh(
                    row + shift,
                    seconds,
                    0.34,
                    left,
                    color=colour,
                    hatch=hatch,
                    edgecolor=GROUND.light,
                    linewidth=0,
                )
                left += seconds
    axes.set_yticks(range(len(methods)), [_wrapped(recorded.methods[m]) for m in methods])
    axes.invert_yaxis()
    axes.margins(x=0.05)
    axes.grid(axis="y", visible=False)
    handles = [Patch(color=colour, label=part) for part, (colour, _) in PARTS.items()]
    handles.append(
        Patch(facecolor=SOFT.light, hatch="////", edgecolor=GROUND.light, label="paper", linewidth=0)
    )
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=8.5)
    return figure


def _wrapped(label: str) -> str:
    """A long name on several lines, to leave room for the bars."""
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
    streams = {recorded.methods[m]: timelines[m]["intervals"] for m in methods}
    until = max((timelines[m]["seconds"] for m in methods), default=1.0)
    return stream_figure(streams, (0.0, until), "virtual seconds")


def overview_pictures(found: Sequence[RecordedExperiment]) -> list[Picture]:
    """SWIFT beside D-SGD, in the case of the paper's (or of all) in which D-SGD waits most."""
    cases = [
        (_waiting(timelines[REFERENCE]["intervals"]), recorded, group, timelines)
        for recorded in found
        for group, timelines in recorded.timelines.items()
        if timelines.keys() >= set(_SHOWN_FIRST)
    ]
    if not cases:
        return []
    share, recorded, group, timelines = max(cases, key=lambda case: (_in_paper(*case[1:3]), case[0]))
    ours = _waiting(timelines[_SHOWN_FIRST[0]]["intervals"])
    until = max(timelines[m]["seconds"] for m in _SHOWN_FIRST)
    label = recorded.groups.get(group, group)
    return [
        Picture(
            f"overview-stream-{method}",
            f"{recorded.methods[method]}, {label}: the first moments of a run, as predicted; a row is a "
            f"client, with its number. These clients wait for {100 * waiting:.0f} % of that time.",
            partial(
                stream_figure,
                {recorded.methods[method]: timelines[method]["intervals"]},
                (0.0, until),
                "virtual seconds",
                row=0.2,
            ),
        )
        for method, waiting in zip(_SHOWN_FIRST, (ours, share), strict=True)
    ]


def _in_paper(recorded: RecordedExperiment, group: str) -> bool:
    return in_paper(recorded.name, group, REFERENCE).epoch is not None


def _waiting(intervals: Sequence[Sequence[Any]]) -> float:
    """The share of all time that is spent waiting."""
    spent = dict.fromkeys(PARTS, 0.0)
    for _, what, start, end in intervals:
        spent[what] += end - start
    return spent["waiting"] / (sum(spent.values()) or 1.0)


# --- losses: the mean over seeds, with a band of one standard deviation ---------------------------------


def loss_pictures(recorded: RecordedExperiment) -> list[Picture]:
    """Panels per group that was trained: the test loss of the consensus model, the mean of the clients' own
    (where they were evaluated; the authors plot it), and the train loss, over time and over epochs."""
    across = {"time": recorded.seconds, "epoch": "epochs"}
    return [
        Picture(
            f"{recorded.name}-{name.replace(' ', '-')}-over-{key}-{group}",
            f"{label}: {name} over {words}.",
            partial(_loss_panel, recorded, group, key, words, loss),
        )
        for group, label in recorded.groups.items()
        for key, words in across.items()
        for loss, name in _LOSSES.items()
        if any(final(recorded.of(group, method), loss) for method in recorded.methods)
    ]


def _loss_panel(recorded: RecordedExperiment, group: str, key: str, words: str, loss: str) -> Figure:
    figure, axes = panel(words, _LOSSES[loss], recorded.groups[group])
    extremes: list[float] = []
    for method, label in recorded.methods.items():
        runs = recorded.of(group, method)
        if runs:
            x, middle, around = averaged(runs, key, loss)
            style = look(method)
            axes.plot(x, middle, label=label, markevery=markers_every(len(x)), **style)
            axes.fill_between(x, middle - around, middle + around, color=style["color"], alpha=0.15, lw=0)
            extremes += [float(v) for v in (middle.min(initial=np.inf), middle.max(initial=-np.inf))]
    _scale(axes, extremes)
    axes.set_xlim(left=0)
    legend_below(figure, axes)
    return figure


def averaged(runs: list[Run], key: str, loss: str) -> tuple[Series, Series, Series]:
    """Mean and standard deviation over runs, at common points that all of them have reached."""
    curves = [_curve(run, key, loss) for run in runs]
    curves = [curve for curve in curves if len(curve[0])]
    if not curves:
        return np.zeros(0), np.zeros(0), np.zeros(0)
    start, end = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    if start > end:  # runs that were evaluated once, at different times, have no point in common
        return np.zeros(0), np.zeros(0), np.zeros(0)
    points = min(MOST_POINTS, max(len(x) for x, _ in curves))
    grid = np.linspace(start, end, points)
    values = np.stack([np.interp(grid, x, y) for x, y in curves])
    around = values.std(axis=0, ddof=1) if len(curves) > 1 else np.zeros(points)
    return grid, values.mean(axis=0), around


def _curve(run: Run, key: str, loss: str) -> tuple[Series, Series]:
    rows = [row for row in run.rows if number(row.get(loss))]
    return np.array([row[key] for row in rows], float), np.array([row[loss] for row in rows], float)


def _scale(axes: Axes, extremes: list[float]) -> None:
    """Logarithmic where losses span much, with plain numbers on the axis."""
    if extremes and min(extremes) > 0 and max(extremes) / min(extremes) > _LOG_FROM:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())


# --- sensitivity ---------------------------------------------------------------------------------------


def sensitivity_pictures(recorded: RecordedExperiment) -> list[Picture]:
    """A pair per constant: how predicted communication and epoch move with it."""
    return [
        Picture(
            f"{recorded.name}-sensitivity-{constant}-{quantity}",
            f"Predicted {quantity} time for other values of {constant}.",
            partial(_sensitivity, recorded, constant, moved, quantity),
        )
        for constant, moved in recorded.sensitivity.items()
        for quantity in _QUANTITIES
    ]


def _sensitivity(recorded: RecordedExperiment, constant: str, moved: dict[str, Any], quantity: str) -> Figure:
    """Ticks are where predictions were made; seconds are in a unit that makes them short."""
    unit, scale = unit_of(constant, moved["values"])
    figure, axes = panel(f"{constant} ({unit})" if unit else constant, _QUANTITIES[quantity])
    values = [value * scale for value in moved["values"]]
    for method, label in recorded.methods.items():
        if method in moved:
            axes.plot(values, moved[method][quantity], label=label, **look(method))
    positive = [value for value in values if value > 0]
    if positive and max(positive) / min(positive) > 20:
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks(values, [f"{value:.3g}" for value in values])
    axes.set_ylim(bottom=0)
    legend_below(figure, axes)
    return figure


# --- networks and data ---------------------------------------------------------------------------------


def topology_figures(recorded: RecordedExperiment, folder: Path) -> list[Markup]:
    """Each network once, even if several groups share it."""
    folder.mkdir(parents=True, exist_ok=True)
    groups: dict[Topology, list[str]] = {}
    for group, described in recorded.about.get("topologies", {}).items():
        groups.setdefault(Topology(described["clients"], described["edges"]), []).append(group)
    parts = []
    for topology, sharing in groups.items():
        name = plain_name(f"{recorded.name}-topology-{sharing[0]}")
        title = f"{topology.n} clients, {topology.m} edges"
        for suffix in ("svg", "png"):
            draw(topology, None, folder / f"{name}.{suffix}", title)
        parts.append(page.figure(folder / f"{name}.svg", f"{_label(recorded, sharing)}: {title}."))
    return parts


def histogram_figures(recorded: RecordedExperiment, folder: Path) -> list[Markup]:
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
        page.figure(
            folder / f"{recorded.name}-labels-{sharing[0]}.svg",
            f"{_label(recorded, sharing)}: who holds how many samples of which label ({partition}).",
        )
        for (partition, _), sharing in groups.items()
    ]


def _label(recorded: RecordedExperiment, groups: list[str]) -> str:
    """The groups' names, or that it is all of them."""
    if len(groups) == len(recorded.groups) > 1:
        return "all groups"
    return ", ".join(recorded.groups.get(group, group) for group in groups)
