"""Figures of one recorded run, or of a few beside each other."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from swiftfl.data.picture import draw_histogram
from swiftfl.files import write_atomically
from swiftfl.palette import SOFT, STYLE
from swiftfl.report.figures import COLOURS

Rows = Sequence[Mapping[str, Any]]
_OF_AN_ENGINE = {
    "virtual": ("time", "virtual time (s)"),
    "sampled": ("iteration", "iterations"),
}
AXES = {"epoch": "epochs", "time": "time (s)", "iteration": "iterations"}
"""What curves may be drawn over, with the label of the axis."""


def axis_of(engine: str) -> tuple[str, str]:
    """What the curves of one engine are drawn over, and the label of that axis."""
    return _OF_AN_ENGINE.get(engine, ("time", AXES["time"]))


def draw_curves(
    curves: Mapping[str, Rows],
    title: str,
    paths: Sequence[Path],
    over: tuple[str, str],
    marks: Mapping[str, float] | None = None,
) -> None:
    """The curves of some runs, in one picture, into files; `marks` are vertical lines, with words for the
    legend."""
    figure = curves_figure({name: [rows] for name, rows in curves.items()}, title, over, marks)
    for path in paths:
        write_figure(figure, path)


def write_figure(figure: Figure, path: Path) -> None:
    """Write a picture; the same bytes every time."""
    undated: Any = {"Date": None} if path.suffix == ".svg" else None
    with mpl.rc_context(STYLE):
        write_atomically(path, partial(figure.savefig, dpi=150, metadata=undated))


def curves_figure(
    groups: Mapping[str, Sequence[Rows]],
    title: str,
    over: tuple[str, str],
    marks: Mapping[str, float] | None = None,
) -> Figure:
    """The consensus model's test loss, and beside it its accuracy or what else there is, a colour per group.

    A group is one run, or the runs of several seeds: their mean is the line, each of them a faint one.
    Dashed is the mean of the clients' own models, where they were evaluated.
    """
    key, label = over
    every = [row for runs in groups.values() for rows in runs for row in rows]
    quantity, words, scale = _beside(every)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10, 4), layout="constrained")
        left, right = figure.subplots(1, 2)
        for (name, runs), colour in zip(groups.items(), COLOURS * len(groups), strict=False):
            for axes, what, times in ((left, "loss", 1.0), (right, quantity, scale)):
                if len(runs) > 1:
                    for rows in runs:
                        _plot(axes, rows, key, what, times, color=colour, linewidth=0.8, alpha=0.35)
                mean = _mean(runs, key, (what, f"mean_client_{what}"))
                style = {"color": colour, "linewidth": 1.8, "marker": "o" if len(mean) == 1 else ""}
                _plot(axes, mean, key, what, times, label=name or "consensus of all models", **style)
                _plot(axes, mean, key, f"mean_client_{what}", times, linestyle="--", **style)
        for words_of_mark, where in (marks or {}).items():
            for axes in (left, right):
                axes.axvline(
                    where, color=SOFT.light, linestyle=":", linewidth=1.4, label=words_of_mark, zorder=1
                )
        left.set(xlabel=label, ylabel="test loss")
        _logarithmic(left, [row["loss"] for row in every if row.get("loss") is not None])
        right.set(xlabel=label, ylabel=words)
        _legend(left, any(row.get("mean_client_loss") is not None for row in every))
        figure.suptitle(title)
    return figure


def _beside(rows: Rows) -> tuple[str, str, float]:
    """What is drawn beside the loss: the key, the label and the scale."""
    if any(row.get("accuracy") is not None for row in rows):
        return "accuracy", "test accuracy (%)", 100.0
    named = next((name for row in rows for name in row.get("metrics") or {}), None)
    return ("consensus_distance", "consensus distance", 1.0) if named is None else (named, named, 1.0)


def _value(row: Mapping[str, Any], quantity: str) -> float | None:
    found: float | None = row[quantity] if quantity in row else (row.get("metrics") or {}).get(quantity)
    return found


def _mean(runs: Sequence[Rows], key: str, quantities: Sequence[str]) -> Rows:
    """The mean over runs, evaluation by evaluation, as far as all have been evaluated."""
    if len(runs) == 1:
        return runs[0]
    found = []
    for rows in zip(*runs, strict=False):
        values = {name: [_value(row, name) for row in rows] for name in (key, *quantities)}
        there = {name: [v for v in each if v is not None] for name, each in values.items()}
        found.append({k: float(np.mean(v)) if len(v) == len(rows) else None for k, v in there.items()})
    return found


def _logarithmic(axes: Axes, values: Sequence[float]) -> None:
    """A logarithmic axis where all values are positive, with plain numbers on it, a few."""
    if not values or min(values) <= 0:
        return
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    decades = np.log10(max(values) / min(values))
    few = FuncFormatter(lambda value, _: f"{value:g}" if _first_digit(value) in (2, 5) else "")
    axes.yaxis.set_minor_formatter(few if decades > 0.6 else FuncFormatter(lambda value, _: f"{value:g}"))


def _first_digit(value: float) -> int:
    return int(f"{value:e}"[0])


def _plot(axes: Axes, rows: Rows, key: str, quantity: str, scale: float, **style: Any) -> None:
    """One curve, of the rows that have the quantity."""
    there = [(row[key], value) for row in rows if (value := _value(row, quantity)) is not None]
    if there:
        axes.plot([x for x, _ in there], [scale * value for _, value in there], **style)


def _legend(axes: Axes, with_clients: bool) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if with_clients:
        handles.append(Line2D([], [], color=SOFT.light, linestyle="--", linewidth=1.8))
        labels.append("mean of the clients' own")
    if handles:
        axes.legend(handles, labels, frameon=False)


def draw_partition(folder: Path) -> None:
    """Draw what partition.json of a run folder holds, if the data have classes."""
    described = json.loads((folder / "partition.json").read_text())
    if "histogram" in described:
        histogram = np.array(described["histogram"], dtype=np.int64)
        draw_histogram(folder / "partition.png", described["partition"], histogram)
