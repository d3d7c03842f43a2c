"""Graphs of clients: topologies, influence scores, and the communication coefficients on them.

Modules of the same name as a function (`ccs`, `metropolis`, `fastest`) hold its formula; the names
here are the functions.
"""

from swiftfl.graph.coefficients import Coefficients
from swiftfl.graph.generators import (
    complete,
    exponential,
    from_edges,
    from_networkx,
    grid,
    hypercube,
    path,
    ring,
    ring_of_cliques,
    star,
    torus,
)
from swiftfl.graph.influence import given, is_uniform, proportional_to, uniform
from swiftfl.graph.methods import ccs, ccs_by_rate, communication_coefficients, fastest, metropolis
from swiftfl.graph.random_graphs import barabasi_albert, erdos_renyi, random_regular, watts_strogatz
from swiftfl.graph.registry import TOPOLOGIES, topology
from swiftfl.graph.topology import Topology

__all__ = [
    "TOPOLOGIES",
    "Coefficients",
    "Topology",
    "barabasi_albert",
    "ccs",
    "ccs_by_rate",
    "communication_coefficients",
    "complete",
    "erdos_renyi",
    "exponential",
    "fastest",
    "from_edges",
    "from_networkx",
    "given",
    "grid",
    "hypercube",
    "is_uniform",
    "metropolis",
    "path",
    "proportional_to",
    "random_regular",
    "ring",
    "ring_of_cliques",
    "star",
    "topology",
    "torus",
    "uniform",
    "watts_strogatz",
]
