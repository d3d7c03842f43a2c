"""A label histogram as a picture: stacked bars for a few clients and labels, a map of shades for many."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from swiftfl.files import write_atomically
from swiftfl.palette import BLUE, SERIES, STYLE

_FEW = 40


def draw_histogram(path: str | Path, title: str, histogram: npt.NDArray[np.int64]) -> None:
    """Clients from left to right; how many samples of each label they hold."""
    undated = {"Date": None} if Path(path).suffix == ".svg" else None
    with matplotlib.rc_context(STYLE):
        figure = _figure(title, histogram)
        write_atomically(Path(path), partial(figure.savefig, dpi=144, metadata=undated))


def _figure(title: str, histogram: npt.NDArray[np.int64]) -> Figure:
    clients, classes = histogram.shape
    bars = clients <= _FEW and classes <= len(SERIES)
    figure = Figure(figsize=(max(6.0, 0.28 * clients + 2.5) if bars else 9.0, 4.2), layout="constrained")
    axes = figure.add_subplot()
    if bars:
        _bars(axes, histogram)
    else:
        _shades(figure, axes, histogram)
    samples = int(histogram.sum())
    axes.set_title(f"{title}: {samples:,} samples, {clients} clients", fontsize=11, loc="left")
    axes.set_xlabel("client")
    if clients <= _FEW:
        axes.set_xticks(range(clients))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=20))
    return figure


def _bars(axes: matplotlib.axes.Axes, histogram: npt.NDArray[np.int64]) -> None:
    clients, classes = histogram.shape
    bottom = np.zeros(clients, dtype=np.int64)
    for k in range(classes):
        colour = SERIES[k].light
        axes.bar(np.arange(clients), histogram[:, k], 0.86, bottom, color=colour, label=str(k), linewidth=0)
        bottom += histogram[:, k]
    axes.set_ylabel("samples")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylim(0, 1.03 * bottom.max())
    axes.set_xlim(-0.6, clients - 0.4)
    axes.grid(axis="x", visible=False)
    handles, names = axes.get_legend_handles_labels()
    axes.legend(  # top of the legend is the top of the bars
        handles[::-1],
        names[::-1],
        title="label",
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
        frameon=False,
    )


def _shades(figure: Figure, axes: matplotlib.axes.Axes, histogram: npt.NDArray[np.int64]) -> None:
    """No sample is the ground, whether that is light or dark: shades differ by how opaque they are."""
    shades = LinearSegmentedColormap.from_list("shades", [to_rgba(BLUE.light, 0.0), to_rgba(BLUE.light)])
    image = axes.imshow(
        histogram.T, aspect="auto", interpolation="nearest", cmap=shades, origin="lower", vmin=0
    )
    axes.grid(visible=False)
    axes.set_ylabel("label")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    figure.colorbar(image, label="samples", pad=0.01)
