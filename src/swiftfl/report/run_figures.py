"""Figures of one recorded run, or of a few beside each other."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from swiftfl.data.picture import draw_histogram
from swiftfl.files import write_atomically
from swiftfl.report.figures import COLOURS, STYLE

_TIME = {
    "virtual": ("time", "virtual time (s)"),
    "sampled": ("iteration", "iterations"),
}


def draw_curves(
    curves: Mapping[str, Sequence[Mapping[str, Any]]],
    title: str,
    paths: Sequence[Path],
    engine: str = "virtual",
) -> None:
    """Test loss and accuracy of the consensus model over the engine's time, a line per algorithm."""
    key, label = _TIME.get(engine, ("time", "time (s)"))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10, 4), layout="constrained")
        left, right = figure.subplots(1, 2)
        for (name, rows), colour in zip(curves.items(), COLOURS * 3, strict=False):
            seconds = [row[key] for row in rows]
            style: Any = {
                "color": colour,
                "label": name,
                "linewidth": 1.8,
                "marker": "o" if len(rows) == 1 else "",
            }
            left.plot(seconds, [row["loss"] for row in rows], **style)
            accuracy = [100 * row["accuracy"] if row["accuracy"] is not None else None for row in rows]
            right.plot(seconds, accuracy, **style)
        left.set(xlabel=label, ylabel="test loss", yscale="log")
        for which in (left.yaxis.set_major_formatter, left.yaxis.set_minor_formatter):
            which(FuncFormatter(lambda value, _: f"{value:g}"))
        right.set(xlabel=label, ylabel="test accuracy (%)")
        left.legend(frameon=False)
        figure.suptitle(title)
        for path in paths:
            undated: Any = {"Date": None} if path.suffix == ".svg" else None
            write_atomically(path, partial(figure.savefig, dpi=150, metadata=undated))


def draw_partition(folder: Path) -> None:
    """Draw what partition.json of a run folder holds, if the data have classes."""
    described = json.loads((folder / "partition.json").read_text())
    if "histogram" in described:
        histogram = np.array(described["histogram"], dtype=np.int64)
        draw_histogram(folder / "partition.png", described["partition"], histogram)
