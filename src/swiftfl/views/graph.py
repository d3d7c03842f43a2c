"""Who is whose neighbour, where each client is drawn, and the weights that the run began with."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import numpy.typing as npt

from swiftfl.errors import UserError
from swiftfl.graph import Topology, communication_coefficients
from swiftfl.graph.drawing import positions
from swiftfl.record.facts import Layout
from swiftfl.views.reading import number

MOST_EDGES = 200_000
"""Directed edges; the graph of a run with more is not told, only where its clients are drawn."""
_MOST_FOR_SPRINGS = 300  # which take a moment; more clients stand in a circle
_MOST_FOR_FASTEST = 40  # whose weights are the solution of a large problem
_log = logging.getLogger(__name__)


def graph_of(
    layout: Layout, config: dict[str, Any] | None, partition: dict[str, Any] | None
) -> dict[str, Any]:
    """Directed edges in the order of the layout, their weights, and the places of clients."""
    n = layout.clients
    told = layout.edges <= MOST_EDGES
    pairs = np.column_stack([owners(layout), np.asarray(layout.indices, dtype=np.int64)])
    topology = _topology(n, pairs) if told else None
    points = _places(n, topology)
    return {
        "edges": pairs.tolist() if told else [],
        "weights": None
        if topology is None or layout.names
        else _weights(topology, pairs, config or {}, partition or {}),
        "x": points[:, 0].tolist(),
        "y": points[:, 1].tolist(),
    }


def owners(layout: Layout) -> npt.NDArray[np.int64]:
    """The client of every directed edge, whose neighbour `layout.indices` names."""
    ends = np.asarray(layout.indptr, dtype=np.int64)
    return np.repeat(np.arange(layout.clients, dtype=np.int64), ends[1:] - ends[:-1])


def _topology(n: int, pairs: npt.NDArray[np.int64]) -> Topology | None:
    """The graph, if that is what the layout holds: an edge in both directions, and none to oneself."""
    try:
        topology = Topology(n, np.sort(pairs, axis=1)) if len(pairs) else Topology(n)
    except UserError as error:
        _log.debug("%s", error)
        return None
    return topology


def _places(n: int, topology: Topology | None) -> npt.NDArray[np.float64]:
    """Between -1 and 1, y upwards."""
    if topology is None or n > _MOST_FOR_SPRINGS or n == 1:
        angle = np.pi / 2.0 - 2.0 * np.pi * np.arange(n) / n
        return np.column_stack([np.cos(angle), np.sin(angle)]) if n > 1 else np.zeros((1, 2))
    points = positions(topology)
    points = points - (points.max(axis=0) + points.min(axis=0)) / 2.0
    scale = float(np.abs(points).max())
    return np.round(points / scale, 5) if np.isfinite(scale) and scale > 0 else np.zeros((n, 2))


def _weights(
    topology: Topology, pairs: npt.NDArray[np.int64], config: dict[str, Any], partition: dict[str, Any]
) -> list[float | None] | None:
    """What client i gives its neighbour's model, in the order of the edges; None where that is not known."""
    algorithm = config.get("algorithm")
    method = algorithm.get("weights") if isinstance(algorithm, dict) else None
    influence = config.get("influence")
    if influence == "data":
        influence = partition.get("sizes")
    elif influence in ("uniform", "measured"):
        influence = None
    if not isinstance(method, str) or not (influence is None or isinstance(influence, list)):
        return None
    if method == "fastest" and topology.n > _MOST_FOR_FASTEST:
        return None
    if not np.array_equal(pairs[:, 1], topology.indices):
        return None
    try:
        found = communication_coefficients(topology, influence, method).of_neighbours
    except (UserError, TypeError, ValueError) as error:
        _log.debug("no weights: %s", error)
        return None
    return [number(round(weight, 6)) for weight in found.tolist()]
