"""How fast random pairs of neighbours come to agree, and what A2CiD2 makes of it.

A client takes part in `rate` averagings per unit of time on average: it begins half of them, each with a
neighbour drawn uniformly, so that the pair (i, j) averages at the rate lambda_ij = rate / 2 (1 / d_i + 1 /
d_j). With the Laplacian L of these rates,

    chi1 = 1 / (the second smallest eigenvalue of L)                      (algebraic connectivity)
    chi2 = 1/2 max over edges (e_i - e_j)' L^+ (e_i - e_j)                (effective resistance)

chi2 <= chi1, and the further they are apart, the more a momentum between averagings gains (Nabli et al.,
2023): the time to agree falls from chi1 to sqrt(chi1 chi2).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from swiftfl.graph.topology import Topology
from swiftfl.memory import require_memory


class Acceleration(NamedTuple):
    """chi1 and chi2 of a graph, and the eta and alpha that A2CiD2 takes from them."""

    chi1: float
    chi2: float

    @property
    def eta(self) -> float:
        """The rate at which a model and its momentum relax towards each other."""
        return float(0.5 / np.sqrt(self.chi1 * self.chi2))

    @property
    def alpha(self) -> float:
        """By what part of the difference of two models an averaging moves the momentum (a model: by half)."""
        return float(0.5 * np.sqrt(self.chi1 / self.chi2))


def pair_rates(topology: Topology, rate: float) -> npt.NDArray[np.float64]:
    """How often the two ends of each edge average, per unit of time."""
    inverse = 1.0 / np.maximum(topology.degrees, 1)
    i, j = topology.edges.T
    return np.asarray(0.5 * rate * (inverse[i] + inverse[j]))


def acceleration(topology: Topology, rate: float) -> Acceleration:
    """
    >>> from swiftfl.graph.generators import complete, ring
    >>> [round(x, 3) for x in acceleration(complete(8), 1.0)]
    [0.875, 0.875]
    >>> [round(x, 3) for x in acceleration(ring(8), 1.0)]
    [3.414, 0.875]
    """
    topology.require_connected()
    n = topology.n
    require_memory(f"the spectrum of a graph of {n} clients", 3 * 8.0 * n * n)
    rates = pair_rates(topology, rate)
    laplacian = np.zeros((n, n))
    for (i, j), weight in zip(topology.edges.tolist(), rates.tolist(), strict=True):
        laplacian[i, j] -= weight
        laplacian[j, i] -= weight
        laplacian[i, i] += weight
        laplacian[j, j] += weight
    values, vectors = np.linalg.eigh(laplacian)
    i, j = topology.edges.T
    gaps = vectors[i, 1:] - vectors[j, 1:]
    resistance = (gaps**2 / values[1:]).sum(axis=1)
    return Acceleration(float(1.0 / values[1]), float(0.5 * resistance.max()))
