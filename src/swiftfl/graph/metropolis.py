"""Metropolis coefficients, weighted by influence: each edge takes what both ends can afford.

    r_i = min{ 1 / (p_i + U_i), (1 - 1/n) / U_i },   U_i = sum of the neighbours' p,   a_ij = min(r_i, r_j)

The first term shares everything between self and neighbours in proportion to p; the second keeps
w_ii >= 1/n. With uniform p this is w_ij = 1 / (1 + max(degree_i, degree_j)).
"""

from __future__ import annotations

import numpy as np

from swiftfl.graph.influence import Influence
from swiftfl.graph.sums import Values, sum_by
from swiftfl.graph.topology import Topology


def metropolis_edges(topology: Topology, p: Influence) -> Values:
    """Metropolis weights, weighted by influence: each edge takes what both ends can afford."""
    if topology.n == 1:
        return np.zeros(0)
    r = metropolis_rates(topology, p)
    return np.minimum(r[topology.edges[:, 0]], r[topology.edges[:, 1]])


def metropolis_rates(topology: Topology, p: Influence) -> Values:
    """r_i for every client of a graph in which everyone has a neighbour."""
    row = np.repeat(np.arange(topology.n), topology.degrees)
    open_influence = sum_by(row, p[topology.indices], topology.n)
    return np.minimum(1.0 / (p + open_influence), (1.0 - 1.0 / topology.n) / open_influence)
