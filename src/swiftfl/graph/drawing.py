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

Points = npt.NDArray[np.float64]

MOST_CLIENTS = 2000
MOST_EDGES = 20_000
LABELS_UP_TO = 64
SUFFIXES = (".svg", ".png", ".pdf")
CLIENT, EDGE, LABEL, TEXT = "#2a6f97", "#7a8b99", "#ffffff", "#33414d"


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
    figure = _figure(topology, coefficients, title)
    out = io.BytesIO()
    form = file.suffix[1:].lower()
    undated: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
    with matplotlib.rc_context({"svg.hashsalt": "swiftfl"}):  # the same picture is the same file
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
    points = _layout(topology)
    _draw_edges(axes, topology, coefficients, points)
    _draw_clients(axes, topology, coefficients, points)
    axes.set_title(title or _caption(topology, coefficients), fontsize=11, color=TEXT)
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.08)
    axes.set_axis_off()
    return figure


def _caption(topology: Topology, coefficients: Coefficients | None) -> str:
    counts = f"{topology.n} clients, {topology.m} edges"
    if coefficients is None:
        return counts
    return f"{counts} · {coefficients.method}, spectral gap {coefficients.spectral_gap:.3g}"


def _draw_edges(axes: Any, topology: Topology, coefficients: Coefficients | None, points: Points) -> None:
    """Width by the mean of an edge's two weights, against the largest."""
    from matplotlib.collections import LineCollection

    if topology.m == 0:
        return
    width: float | Points = 2.0
    if coefficients is not None:
        p, edges = coefficients.influence, topology.edges
        weight = coefficients.a * (p[edges[:, 0]] + p[edges[:, 1]]) / 2.0
        width = 0.5 + 4.0 * weight / weight.max()
    if topology.m > 500:
        width = width * (500 / topology.m) ** 0.5
    lines = LineCollection(list(points[topology.edges]), linewidths=width, colors=EDGE, alpha=0.7, zorder=1)
    lines.set_capstyle("round")
    axes.add_collection(lines)


def _draw_clients(axes: Any, topology: Topology, coefficients: Coefficients | None, points: Points) -> None:
    """Area by influence (a client of average influence has the middle size)."""
    size = _middle_size(topology.n)
    areas = np.full(topology.n, size)
    if coefficients is not None:
        areas = size * np.clip(topology.n * coefficients.influence, 0.15, 6.0)
    axes.scatter(points[:, 0], points[:, 1], s=areas, c=CLIENT, edgecolors="white", linewidths=1.0, zorder=2)
    if topology.n <= LABELS_UP_TO:
        for i, (x, y) in enumerate(points.tolist()):
            font = min(11.0, max(4.0, 0.42 * math.sqrt(areas[i])))
            axes.text(x, y, str(i), ha="center", va="center_baseline", fontsize=font, color=LABEL, zorder=3)


def _middle_size(n: int) -> float:
    return min(700.0, max(6.0, 9000.0 / n))


def _layout(topology: Topology) -> Points:
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
