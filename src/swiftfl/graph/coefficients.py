"""Communication coefficients: what each client's column w_i is, and whether it is valid.

The conditions, for every client i with influence p_i > 0 on a connected graph of n clients:

(a) every column sums to one; (b) w_ii >= 1/n; (c) every edge's weights are positive;
(d) p_j w_ij = p_i w_ji, so that the expected matrix is symmetric and doubly stochastic.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from swiftfl.errors import UserError
from swiftfl.graph.influence import Influence
from swiftfl.graph.spectrum import laplacian, spectral_gap
from swiftfl.graph.sums import Values, sum_by
from swiftfl.graph.topology import Topology
from swiftfl.vector import Weights


def promised(method: str) -> str:
    """The conditions that a method keeps on every graph; neighbourhood-uniform weights lack (d)."""
    return "abc" if method == "uniform" else "abcd"


@dataclass(frozen=True, slots=True)
class Report:
    """How well the conditions hold: the sizes of the worst cases, and the first violation in words."""

    column_sum_error: float
    smallest_own_times_n: float
    smallest_edge_weight: float
    asymmetry: float
    violation: str | None

    @property
    def valid(self) -> bool:
        """Whether (a)-(d) hold."""
        return self.violation is None


@dataclass(frozen=True, eq=False)
class Coefficients:
    """One number a_ij per edge, and everything that follows: w_ji = a_ij p_j, w_ii = 1 - sum_j w_ji."""

    topology: Topology
    influence: Influence
    method: str
    a: Values

    def __post_init__(self) -> None:
        self.a.setflags(write=False)

    @cached_property
    def of_neighbours(self) -> Values:
        """w_{j,i} for every entry j of `topology.indices`, client i after client i."""
        w: Values = self.a[self.topology.edge_ids] * self.influence[self.topology.indices]
        w.setflags(write=False)
        return w

    @cached_property
    def own(self) -> Values:
        """w_{i,i} for every client (sums in index order)."""
        t = self.topology
        row = np.repeat(np.arange(t.n), t.degrees)
        own: Values = 1.0 - sum_by(row, self.of_neighbours, t.n)
        own.setflags(write=False)
        return own

    def weights(self, i: int) -> Weights:
        """Client i's column as its step uses it: own, and neighbours ascending."""
        neighbours = self.topology.neighbours(i)
        start, stop = self.topology.indptr[i : i + 2].tolist()
        values = self.of_neighbours[start:stop].tolist()
        return Weights(float(self.own[i]), dict(zip(neighbours, values, strict=True)))

    def column(self, i: int) -> dict[int, float]:
        """w_{j,i} by j, own included, ascending."""
        w = self.weights(i)
        return dict(sorted({**w.of, int(i): w.own}.items()))

    def columns(self) -> list[dict[int, float]]:
        """Every client's column."""
        return [self.column(i) for i in range(self.topology.n)]

    def active_matrix(self, i: int) -> npt.NDArray[np.float64]:
        """W_i = I + (w_i - e_i) e_i^T: the step in which client i is active (dense, n x n)."""
        W: npt.NDArray[np.float64] = np.eye(self.topology.n)
        for j, weight in self.column(i).items():
            W[j, i] = weight
        return W

    @property
    def edge_weights(self) -> Values:
        """a_ij p_i p_j: the off-diagonal entries of the expected matrix, per edge."""
        p, edges = self.influence, self.topology.edges
        product: Values = self.a * p[edges[:, 0]] * p[edges[:, 1]]
        return product

    def expected_matrix(self) -> Any:
        """sum_i p_i W_i = I - sum_edges a_ij p_i p_j (e_i - e_j)(e_i - e_j)^T, sparse (CSR)."""
        from scipy.sparse import eye_array

        Q = laplacian(self.topology, self.edge_weights)
        return (eye_array(self.topology.n, format="csr") - Q).tocsr()

    @cached_property
    def spectral_gap(self) -> float:
        """1 - rho."""
        return spectral_gap(self.topology, self.edge_weights)

    @property
    def rho(self) -> float:
        """`max_{k>=2} |lambda_k|^2` of the expected matrix; at least (1 - p_min)^2."""
        return 1.0 - self.spectral_gap

    def report(self, tolerance: float = 1e-9) -> Report:
        """The conditions measured on the columns that clients use; `tolerance` is relative."""
        t, p, w = self.topology, self.influence, self.of_neighbours
        row = np.repeat(np.arange(t.n), t.degrees)
        sums = np.abs(self.own + sum_by(row, w, t.n) - 1.0)
        first, second = _both_directions(self)
        left, right = p[t.edges[:, 1]] * first, p[t.edges[:, 0]] * second
        asymmetry = np.abs(left - right) / np.maximum(np.maximum(left, right), np.finfo(float).tiny)
        edge = np.minimum(first, second)
        return Report(
            column_sum_error=float(sums.max()),
            smallest_own_times_n=float(self.own.min() * t.n),
            smallest_edge_weight=float(edge.min(initial=np.inf)),
            asymmetry=float(asymmetry.max(initial=0.0)),
            violation=_violation(self, sums, edge, asymmetry, tolerance),
        )

    def check(self, tolerance: float = 1e-9) -> Report:
        """The report, or a `UserError` that names who violates a condition that the method promises."""
        report = self.report(tolerance)
        if report.violation is not None and report.violation[1] in promised(self.method):
            raise UserError(report.violation)
        return report


def _both_directions(c: Coefficients) -> tuple[Values, Values]:
    """Per edge (i, j): w_{i,j} (what j gives to i) and w_{j,i}, both as stored in the columns."""
    t = c.topology
    row = np.repeat(np.arange(t.n), t.degrees)
    forward = t.indices > row
    first, second = np.empty(t.m), np.empty(t.m)
    second[t.edge_ids[forward]] = c.of_neighbours[forward]
    first[t.edge_ids[~forward]] = c.of_neighbours[~forward]
    return first, second


def _violation(
    c: Coefficients, sums: Values, edge: Values, asymmetry: Values, tolerance: float
) -> str | None:
    n, edges = c.topology.n, c.topology.edges
    least = 1.0 - max(tolerance, 1e-14 * n)  # own weights are 1 minus a sum: absolute rounding
    for i in np.flatnonzero(~(sums <= tolerance)):
        return f"(a) fails: column {i} misses the sum 1 by {sums[i]:.3g}"
    for i in np.flatnonzero(~(c.own * n >= least)):
        return f"(b) fails: client {i} keeps {c.own[i]:.9g}, less than 1/n = {1.0 / n:.9g}"
    for e in np.flatnonzero(~(edge > 0)):
        return f"(c) fails: edge {tuple(edges[e].tolist())} has weight {edge[e]:.3g}"
    for e in np.flatnonzero(~(asymmetry <= tolerance)):
        return f"(d) fails: edge {tuple(edges[e].tolist())} is asymmetric by {asymmetry[e]:.3g}"
    return None
