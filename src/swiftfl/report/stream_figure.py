"""Who computes, communicates and waits, as a picture: one row per client, time to the right."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path

from swiftfl.palette import PARTS, STYLE
from swiftfl.report.figures import WIDTH, named
from swiftfl.report.stream_text import Span, Window

MOST_SPANS = 5000
"""Of one stream; a longer one is cut, and its axis shows where."""
_SMALLEST = 5.0
"""Points: of the names of clients; where rows are lower than that, only some have theirs."""
_HEAD, _FOOT = 0.3, 0.85
"""Inches: of a stream's title, and of the axis with the legend."""


def stream_figure(
    streams: Mapping[str, Sequence[Span]],
    window: Window,
    axis: str = "virtual time (s)",
    *,
    clients: Mapping[int, str] | None = None,
    columns: int = 1,
    width: float = WIDTH,
    row: float = 0.13,
    title: str = "",
    style: Any = STYLE,
    most: int = MOST_SPANS,
) -> Figure:
    """One stream per run, below or beside each other, over the same time. `clients` have names in place of
    their number; `width` and `row`, the height of a client's row, are in inches; `style` is of matplotlib."""
    shown = {name: _within(spans, window, most) for name, spans in streams.items()}
    everybody = {name: sorted({span[0] for span in spans}) for name, spans in shown.items()}
    rows = -(-len(shown) // columns)
    tallest = max((len(these) for these in everybody.values()), default=1)
    height = rows * (_HEAD + row * max(3, tallest)) + _FOOT + (0.25 if title else 0.0)
    with mpl.rc_context(style):
        figure = Figure(figsize=(width, height), layout="constrained")
        panels = figure.subplots(rows, columns, sharex=True, squeeze=False).flat
        for (name, spans), axes in zip(shown.items(), panels, strict=False):
            _draw(axes, spans, everybody[name], clients or {}, min(9.0, 46 * row))
            axes.set_title(named(name), loc="left", fontsize=min(9.0, mpl.rcParams["font.size"]), pad=2)
            axes.set_xlim(*window)
        for axes in list(figure.axes)[-columns:]:
            axes.set_xlabel(axis)
        handles = [Patch(facecolor=colour.light, label=part) for part, colour in PARTS.items()]
        figure.legend(
            handles=handles,
            loc="outside lower center",
            ncols=3,
            frameon=False,
            fontsize=min(8.5, mpl.rcParams["font.size"]),
        )
        if title:
            figure.suptitle(title, fontsize=11)
    return figure


def _within(spans: Sequence[Span], window: Window, most: int) -> list[Span]:
    """By time; what lies outside is not drawn."""
    begin, end = window
    inside = [(who, what, max(a, begin), min(b, end)) for who, what, a, b in spans if b > begin and a < end]
    return sorted(inside, key=lambda span: span[2])[:most]


def _draw(
    axes: Axes, spans: Sequence[Span], clients: Sequence[int], names: Mapping[int, str], font: float
) -> None:
    """One shape per part, of as many boxes as it needs: small files, sharp at any size."""
    row = {client: k for k, client in enumerate(clients)}
    for part, colour in PARTS.items():
        boxes = [
            [(start, row[who]), (start, row[who] + 0.86), (end, row[who] + 0.86), (end, row[who])]
            for who, what, start, end in spans
            if what == part
        ]
        if boxes:
            shape = Path.make_compound_path(*(Path(box, closed=False) for box in boxes))
            # Without snapping to pixels, or what takes shorter than one would be there or not by chance.
            axes.add_patch(PathPatch(shape, facecolor=colour.light, linewidth=0, snap=False))
    every = max(1, math.ceil(_SMALLEST / font))
    axes.set_yticks(
        [k + 0.43 for k in range(0, len(clients), every)],
        [names.get(i, str(i)) for i in clients[::every]],
        fontsize=max(font, _SMALLEST),
    )
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(clients), -0.1)
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)
