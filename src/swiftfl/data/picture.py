"""A label histogram as a picture: stacked bars for a few clients, a map of shades for many."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from swiftfl.files import write_atomically

_FEW = 40


def draw_histogram(path: str | Path, title: str, histogram: npt.NDArray[np.int64]) -> None:
    """Clients from left to right; how many samples of each label they hold."""
    clients = len(histogram)
    few = clients <= _FEW
    figure = Figure(figsize=(max(6.0, 0.28 * clients + 2.5) if few else 9.0, 4.2), layout="constrained")
    axes = figure.add_subplot()
    if few:
        _bars(axes, histogram)
    else:
        _shades(figure, axes, histogram)
    samples = int(histogram.sum())
    axes.set_title(f"{title}: {samples:,} samples, {clients} clients", fontsize=11, loc="left")
    axes.set_xlabel("client")
    if few:
        axes.set_xticks(range(clients))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=20))
    undated = {"Date": None} if Path(path).suffix == ".svg" else None
    with matplotlib.rc_context({"svg.hashsalt": "swiftfl"}):  # the same picture is the same file
        write_atomically(Path(path), partial(figure.savefig, dpi=144, metadata=undated))


def _bars(axes: matplotlib.axes.Axes, histogram: npt.NDArray[np.int64]) -> None:
    clients, classes = histogram.shape
    colours = matplotlib.colormaps["tab10" if classes <= 10 else "turbo"]
    bottom = np.zeros(clients, dtype=np.int64)
    for k in range(classes):
        colour = colours(k) if classes <= 10 else colours(k / (classes - 1))
        axes.bar(np.arange(clients), histogram[:, k], 0.86, bottom, color=colour, label=str(k), linewidth=0)
        bottom += histogram[:, k]
    axes.set_ylabel("samples")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylim(0, 1.03 * bottom.max())
    axes.set_xlim(-0.6, clients - 0.4)
    axes.spines[["top", "right"]].set_visible(False)
    handles, names = axes.get_legend_handles_labels()
    if classes <= 20:  # top of the legend is the top of the bars
        axes.legend(
            handles[::-1],
            names[::-1],
            title="label",
            loc="center left",
            bbox_to_anchor=(1.0, 0.5),
            frameon=False,
        )


def _shades(figure: Figure, axes: matplotlib.axes.Axes, histogram: npt.NDArray[np.int64]) -> None:
    image = axes.imshow(histogram.T, aspect="auto", interpolation="nearest", cmap="YlGnBu", origin="lower")
    axes.set_ylabel("label")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    figure.colorbar(image, label="samples", pad=0.01)
