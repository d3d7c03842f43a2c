"""A graph that a user gave in Python, as a topology."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from swiftfl.api.words import shown
from swiftfl.errors import UserError
from swiftfl.graph import Topology, from_edges, from_networkx


def graph_of(topology: object) -> Topology:
    """A graph of the user's own."""
    if isinstance(topology, Topology):
        return topology
    if isinstance(topology, os.PathLike):
        from swiftfl.graph.files import read_topology

        return read_topology(topology)
    if type(topology).__module__.partition(".")[0] == "networkx":
        return _checked("topology", lambda: from_networkx(topology))
    if isinstance(topology, Iterable) and not isinstance(topology, Mapping | bytes):
        if isinstance(topology, np.ndarray) and topology.ndim == 2 and topology.shape[1] != 2:
            raise UserError(
                f"topology is an array of shape {topology.shape}: for a matrix of neighbours, give "
                "networkx.from_numpy_array(matrix)"
            )
        pairs = list(topology)
        for pair in pairs:
            if not _is_edge(pair):
                raise UserError(f"topology: {shown(pair)} is not an edge, which is a pair of client numbers")
        return _checked("topology", lambda: from_edges([(int(i), int(j)) for i, j in pairs]))
    raise UserError(
        "topology must be a name, a swiftfl.Topology, a networkx graph or a list of edges, "
        f"not {shown(topology)}"
    )


def _is_edge(pair: object) -> bool:
    if not isinstance(pair, Sequence | np.ndarray) or isinstance(pair, str) or len(pair) != 2:
        return False
    return all(isinstance(end, int | np.integer) and not isinstance(end, bool) for end in pair)


def _checked(argument: str, make: Callable[[], Topology]) -> Topology:
    try:
        return make().require_connected()
    except UserError as error:
        raise UserError(f"{argument}: {error}") from None
