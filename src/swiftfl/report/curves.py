"""Curves over virtual time, in one colour-blind-safe style (Okabe and Ito's colours)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "svg.hashsalt": "swiftfl",
}


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
        figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
        for (name, rows), colour in zip(curves.items(), COLOURS * 3, strict=False):
            seconds = [row[key] for row in rows]
            left.plot(seconds, [row["loss"] for row in rows], color=colour, label=name, linewidth=1.8)
            accuracy = [100 * row["accuracy"] if row["accuracy"] is not None else None for row in rows]
            right.plot(seconds, accuracy, color=colour, label=name, linewidth=1.8)
        left.set(xlabel=label, ylabel="test loss", yscale="log")
        for which in (left.yaxis.set_major_formatter, left.yaxis.set_minor_formatter):
            which(FuncFormatter(lambda value, _: f"{value:g}"))
        right.set(xlabel=label, ylabel="test accuracy (%)")
        left.legend(frameon=False)
        figure.suptitle(title)
        for path in paths:
            figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
        plt.close(figure)
