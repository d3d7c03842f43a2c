"""Losses over time and over epochs: the mean over seeds, with a band of one standard deviation."""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from swiftfl.report.figures import Picture, legend_below, look, markers_every, panel
from swiftfl.reproduce.report.recorded import RecordedExperiment, Run, number

MOST_POINTS = 60
_LOSSES = {"loss": "test loss", "train_loss": "train loss"}
_LOG_FROM = 10.0
"""From this ratio of the largest to the smallest loss on, the axis is logarithmic."""
Series = npt.NDArray[np.float64]


def loss_pictures(recorded: RecordedExperiment) -> list[Picture]:
    """Four panels per group that was trained: test and train loss, over time and over epochs."""
    across = {"time": recorded.seconds, "epoch": "epochs"}
    return [
        Picture(
            f"{recorded.name}-{name.replace(' ', '-')}-over-{key}-{group}",
            f"{label}: {name} over {words}.",
            partial(_panel, recorded, group, key, words, loss),
        )
        for group, label in recorded.groups.items()
        if any(recorded.of(group, method) for method in recorded.methods)
        for key, words in across.items()
        for loss, name in _LOSSES.items()
    ]


def _panel(recorded: RecordedExperiment, group: str, key: str, words: str, loss: str) -> Figure:
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
