"""The same coefficient on every edge: with uniform influence each neighbour has the weight 1/n.

    a_ij = min{ 1, min_i (1 - 1/n) / U_i },   U_i = sum of the neighbours' p,   so that w_{j,i} = a p_j

With uniform p this is what the SWIFT authors' code calls `uniform-symmetric`, and a = 1. With another p a
neighbour counts as it would in a complete graph, and the weights of everybody are lowered where one client
would otherwise keep less than 1/n. On sparse graphs these weights mix slowly.
"""

from __future__ import annotations

import numpy as np

from swiftfl.graph.influence import Influence
from swiftfl.graph.sums import Values, sum_by
from swiftfl.graph.topology import Topology


def one_over_n_edges(topology: Topology, p: Influence) -> Values:
    """The same coefficient on every edge: with uniform influence each neighbour has the weight 1/n."""
    if topology.n == 1:
        return np.zeros(0)
    row = np.repeat(np.arange(topology.n), topology.degrees)
    most = float(sum_by(row, p[topology.indices], topology.n).max())
    return np.full(topology.m, min(1.0, (1.0 - 1.0 / topology.n) / most))
