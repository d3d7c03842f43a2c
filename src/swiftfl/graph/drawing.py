"""A picture of a topology: clients sized by influence, edges as wide as their weight."""

from __future__ import annotations

import io
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from swiftfl.errors import UserError
from swiftfl.files import checked_target, write_atomically
from swiftfl.graph.coefficients import Coefficients
from swiftfl.graph.topology import Topology
from swiftfl.palette import BLUE, EDGE, GROUND, STYLE, TEXT

Points = npt.NDArray[np.float64]

MOST_CLIENTS = 2000
MOST_EDGES = 20_000
LABELS_UP_TO = 64
SUFFIXES = (".svg", ".png", ".pdf")
_ALIKE = 1.005
"""Numbers that are closer than by this factor are written as one."""
_SIZES = (0.15, 6.0)
"""The smallest and the largest area of a client, in those of the middle one."""
_LARGEST_SHOWN = 40.0
"""Points: the largest circle of the legend."""


def draw(
    topology: Topology,
    coefficients: Coefficients | None,
    path: str | os.PathLike[str],
    title: str | None = None,
) -> None:
    """Draw into an SVG, PNG or PDF file, which appears complete or not at all."""
    import matplotlib

    file = Path(path)
    check_drawing(topology, file)
    out = io.BytesIO()
    form = file.suffix[1:].lower()
    undated: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
    with matplotlib.rc_context(STYLE):
        figure = _figure(topology, coefficients, title)
        figure.savefig(out, format=form, metadata=undated[form])
    write_atomically(file, out.getvalue())


def check_drawing(topology: Topology, file: Path) -> Path:
    """The real file that `draw` would write; what `draw` would refuse is refused here."""
    if file.suffix.lower() not in SUFFIXES:
        raise UserError(f"{file}: drawings are written as {', '.join(SUFFIXES)}")
    if topology.n > MOST_CLIENTS or topology.m > MOST_EDGES:
        raise UserError(f"{topology.n} clients and {topology.m} edges are too many to draw")
    return checked_target(file)


def _figure(topology: Topology, coefficients: Coefficients | None, title: str | None) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 7.0), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    points = positions(topology)
    _draw_edges(axes, topology, coefficients, points)
    _draw_clients(axes, topology, coefficients, points)
    axes.set_title(title or _caption(topology, coefficients), fontsize=11)
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.08)
    axes.set_axis_off()
    if coefficients is not None:
        _draw_legend(figure, coefficients)
    return figure


def _caption(topology: Topology, coefficients: Coefficients | None) -> str:
    counts = f"{topology.n} clients, {topology.m} edges"
    if coefficients is None:
        return counts
    return f"{counts} · {coefficients.method}, spectral gap {coefficients.spectral_gap:.3g}"


def _draw_edges(axes: Any, topology: Topology, coefficients: Coefficients | None, points: Points) -> None:
    from matplotlib.collections import LineCollection

    if topology.m == 0:
        return
    widths = np.full(topology.m, 2.0) if coefficients is None else _widths(coefficients)
    lines = LineCollection(
        list(points[topology.edges]), linewidths=widths, colors=EDGE.light, alpha=0.7, zorder=1
    )
    lines.set_capstyle("round")
    axes.add_collection(lines)


def _mean_weights(coefficients: Coefficients) -> Points:
    """Of every edge: the mean of what its two clients give to each other's model."""
    p, edges = coefficients.influence, coefficients.topology.edges
    return np.asarray(coefficients.a * (p[edges[:, 0]] + p[edges[:, 1]]) / 2.0)


def _widths(coefficients: Coefficients) -> Points:
    """By the mean weight of an edge, against the largest; thinner where there are many."""
    weight = _mean_weights(coefficients)
    crowd = min(1.0, (60 / coefficients.topology.m) ** 0.5)
    return np.asarray((0.5 + 4.0 * weight / weight.max()) * crowd)


def _draw_clients(axes: Any, topology: Topology, coefficients: Coefficients | None, points: Points) -> None:
    areas = np.full(topology.n, _middle_size(topology.n)) if coefficients is None else _areas(coefficients)
    axes.scatter(
        points[:, 0], points[:, 1], s=areas, c=BLUE.light, edgecolors=GROUND.light, linewidths=1.0, zorder=2
    )
    if topology.n <= LABELS_UP_TO:
        for i, (x, y) in enumerate(points.tolist()):
            font = min(11.0, max(4.0, 0.42 * math.sqrt(areas[i])))
            axes.text(
                x, y, str(i), ha="center", va="center_baseline", fontsize=font, color=GROUND.light, zorder=3
            )


def _areas(coefficients: Coefficients) -> Points:
    """By influence (a client of average influence has the middle size)."""
    n = coefficients.topology.n
    return np.asarray(_middle_size(n) * np.clip(n * coefficients.influence, *_SIZES))


def _draw_legend(figure: Any, coefficients: Coefficients) -> None:
    """What sizes and widths mean: the smallest and the largest of each; one of them where all are alike."""
    from matplotlib.lines import Line2D

    handles, labels, tallest = [], [], 0.0
    for value, area in _ends(coefficients.influence, _areas(coefficients)):
        wide = min(math.sqrt(area), _LARGEST_SHOWN)
        handles.append(Line2D([], [], linestyle="", marker="o", markersize=wide, color=BLUE.light))
        labels.append(f"client with influence {value:.3g}")
        tallest = max(tallest, wide)
    if coefficients.topology.m:
        for value, width in _ends(_mean_weights(coefficients), _widths(coefficients)):
            handles.append(Line2D([], [], linewidth=width, color=EDGE.light, alpha=0.7))
            labels.append(f"edge with weight {value:.3g}")
    figure.legend(
        handles, labels, loc="outside lower center", ncols=2 if len(handles) == 4 else 3, frameon=False,
        fontsize=9, labelcolor=TEXT.light,
        handlelength=max(2.5, tallest / 9), handleheight=max(0.7, 0.9 * tallest / 9), columnspacing=2.5,
    )  # fmt: skip


def _ends(values: Points, drawn: Points) -> list[tuple[float, float]]:
    """The smallest and the largest of some numbers, each with how it is drawn."""
    least, most = int(values.argmin()), int(values.argmax())
    shown = [most] if values[most] <= _ALIKE * values[least] else [least, most]
    return [(float(values[k]), float(drawn[k])) for k in shown]


def _middle_size(n: int) -> float:
    return min(700.0, max(6.0, 9000.0 / n))


def positions(topology: Topology) -> Points:
    """A circle for rings and complete graphs; springs, started from a good guess, for the others."""
    n, hop = topology.n, topology.edges[:, 1] - topology.edges[:, 0]
    if n == 1:
        return np.zeros((1, 2))
    closed = int((hop == 1).sum()) == n - 1 and bool((hop == n - 1).any())
    if closed and (topology.m == n or topology.m == n * (n - 1) // 2):
        return _circle(n)
    tree = topology.m < n
    return _springs(topology, _circle(n) if closed or tree else None)


def _circle(n: int) -> Points:
    angle = np.pi / 2.0 - 2.0 * np.pi * np.arange(n) / n
    return np.column_stack([np.cos(angle), np.sin(angle)])


def _springs(topology: Topology, start: Points | None) -> Points:
    """Kamada-Kawai for small graphs (shows grids as grids), force-directed for larger ones."""
    import networkx

    graph = networkx.Graph()
    graph.add_nodes_from(range(topology.n))
    graph.add_edges_from(topology.edges.tolist())
    if topology.n <= 200 and topology.is_connected:
        first = networkx.spectral_layout(graph) if start is None else dict(enumerate(start))
        apart = 1e-3 * _circle(topology.n)  # no two clients in the same place
        places = networkx.kamada_kawai_layout(graph, pos={i: first[i] + apart[i] for i in first})
    else:
        places = networkx.spring_layout(graph, seed=0, iterations=100)
    return np.array([places[i] for i in range(topology.n)], dtype=np.float64)
