"""Neighbourhood-uniform weights: every client takes the plain mean of itself and its neighbours.

    w_{j,i} = 1 / (degree_i + 1)   for i itself and each neighbour j

This is what the SWIFT authors' code gives to the synchronous methods. Columns sum to one, but an edge's
two weights agree only if both ends have the same degree. On any other graph the expected matrix is
neither symmetric nor doubly stochastic: clients of high degree count more in what the models converge to.
With D' = diag(p_i / (degree_i + 1)) and the graph's Laplacian L, it is I - L D'.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from swiftfl.graph.coefficients import Coefficients
from swiftfl.graph.influence import Influence
from swiftfl.graph.spectrum import gap_of_symmetric, laplacian
from swiftfl.graph.sums import Values
from swiftfl.graph.topology import Topology


def neighbourhood_uniform(topology: Topology, p: Influence) -> NeighbourhoodUniform:
    """The plain mean of a client and its neighbours; not doubly stochastic where degrees differ."""
    share = 1.0 / (topology.degrees + 1.0)
    i, j = topology.edges[:, 0], topology.edges[:, 1]
    return NeighbourhoodUniform(topology, p, "uniform", (share[i] + share[j]) / (p[i] + p[j]))


class NeighbourhoodUniform(Coefficients):
    """Columns that do not follow from one number per edge.

    `a` is what gives each edge's two weights their mean, for pictures; nothing else follows from it.
    """

    @cached_property
    def of_neighbours(self) -> Values:
        degrees = self.topology.degrees
        w: Values = np.repeat(1.0 / (degrees + 1.0), degrees)
        w.setflags(write=False)
        return w

    @cached_property
    def own(self) -> Values:
        own: Values = np.reciprocal(self.topology.degrees + 1.0)
        own.setflags(write=False)
        return own

    def expected_matrix(self) -> Any:
        from scipy.sparse import diags_array, eye_array

        L = laplacian(self.topology, np.ones(self.topology.m))
        return (eye_array(self.topology.n, format="csr") - L @ diags_array(self._rates)).tocsr()

    @property
    def _rates(self) -> Values:
        rates: Values = self.influence * self.own
        return rates

    @cached_property
    def spectral_gap(self) -> float:
        """1 - rho: L D' has the eigenvalues of the symmetric D'^1/2 L D'^1/2, which are real."""
        from scipy.sparse import diags_array

        root = diags_array(np.sqrt(self._rates))
        return gap_of_symmetric(root @ laplacian(self.topology, np.ones(self.topology.m)) @ root)
