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
from swiftfl.report.figures import COLOURS, STYLE

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


def draw_curves(curves: Mapping[str, Rows], title: str, paths: Sequence[Path], over: tuple[str, str]) -> None:
    """Test loss and accuracy of the consensus model, a line per run; dashed, the mean of the clients' own
    where they were evaluated."""
    key, label = over
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10, 4), layout="constrained")
        left, right = figure.subplots(1, 2)
        for (name, rows), colour in zip(curves.items(), COLOURS * len(curves), strict=False):
            style = {"color": colour, "linewidth": 1.8, "marker": "o" if len(rows) == 1 else ""}
            _plot(left, rows, key, "loss", 1.0, label=name, **style)
            _plot(left, rows, key, "mean_client_loss", 1.0, linestyle="--", **style)
            _plot(right, rows, key, "accuracy", 100.0, **style)
            _plot(right, rows, key, "mean_client_accuracy", 100.0, linestyle="--", **style)
        left.set(xlabel=label, ylabel="test loss", yscale="log")
        for which in (left.yaxis.set_major_formatter, left.yaxis.set_minor_formatter):
            which(FuncFormatter(lambda value, _: f"{value:g}"))
        right.set(xlabel=label, ylabel="test accuracy (%)")
        _legend(
            left, any(row.get("mean_client_loss") is not None for rows in curves.values() for row in rows)
        )
        figure.suptitle(title)
        for path in paths:
            undated: Any = {"Date": None} if path.suffix == ".svg" else None
            write_atomically(path, partial(figure.savefig, dpi=150, metadata=undated))


def _plot(axes: Axes, rows: Rows, key: str, quantity: str, scale: float, **style: Any) -> None:
    """One curve, of the rows that have the quantity."""
    there = [row for row in rows if row.get(quantity) is not None]
    axes.plot([row[key] for row in there], [scale * row[quantity] for row in there], **style)


def _legend(axes: Axes, with_clients: bool) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if with_clients:
        handles.append(Line2D([], [], color="#555555", linestyle="--", linewidth=1.8))
        labels.append("mean of the clients' own")
    axes.legend(handles, labels, frameon=False)


def draw_partition(folder: Path) -> None:
    """Draw what partition.json of a run folder holds, if the data have classes."""
    described = json.loads((folder / "partition.json").read_text())
    if "histogram" in described:
        histogram = np.array(described["histogram"], dtype=np.int64)
        draw_histogram(folder / "partition.png", described["partition"], histogram)
