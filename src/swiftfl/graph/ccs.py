"""Communication Coefficient Selection (Algorithm 2), for all clients at once.

One number is kept per edge, a_ij = w_{j,i} / p_j = w_{i,j} / p_i. Then w_{j,i} = a_ij p_j and
w_{i,i} = 1 - sum_j a_ij p_j, so that columns sum to one (a) and p_j w_{i,j} = p_i w_{j,i} (d) hold by
construction. The paper's waterfall decides a: clients of larger degree assign first, ties agree
on a common value. Let delta = 0 if p is uniform, else 1/n. For client i with larger, equal and smaller
neighbours L, E, S, P_X = sum_{j in X} p_j, and sigma = p_i + P_E + P_S:

    R = sum_L a_ij p_j                                   assigned by larger neighbours (s_w)
    a_ij = (1 - delta - max(R_i, R_j)) / max(sigma_i, sigma_j)        on E, the maximum pairwise
    A = R + sum_E a_ij p_j
    a_ij = (1 - delta - A) / (p_i + P_S)                              on S

The printed algorithm breaks w_ii >= 1/n or w > 0 on some graphs, even with uniform p. Three guards
fire exactly there: they scale down what i was assigned, by c <= 1, and the far end keeps the rest:

    E and S empty, R > 1 - 1/n:       cL = (1 - 1/n) / R
    1 - delta - R <= 1e-12:           R* = (1 - delta) P_L / (P_L + sigma), cL = R*/R
    p uniform, own weight < 1/n:      A* = (|L| + |E|) / (degree + 1), cE = A*/A, cL <- cL A*/A

The final value of an edge is a c, with c = cL of the smaller end, or min(cE_i, cE_j) on a tie.
`messages.py` is the same algorithm as clients run it; both give the same bits, because every sum
is taken in index order, one term after another (`sum_by`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from swiftfl.graph.influence import Influence, is_uniform
from swiftfl.graph.sums import Values, sum_by
from swiftfl.graph.topology import Indices, Topology

EXHAUSTED = 1e-12
"""A client with at most this much left to give (absolute) has nothing left."""
TIED = 1e-12
"""An own weight within this (relative) of 1/n is not below it: rounding must not fire a guard."""


def ccs_edges(topology: Topology, p: Influence) -> Values:
    """The paper's Algorithm 2, with guards where its printed form gives weights that are too small."""
    if topology.n == 1:
        return np.zeros(0)
    return _Waterfall.of(topology, p).run()


@dataclass(slots=True)
class _Side:
    """The half-edges (i, j) of one kind, larger, equal or smaller, ordered by the rank of i and then j.

    `start[k]:start[k + 1]` are those of degree class k. `row` is the rank of i.
    """

    row: Indices
    neighbour: Indices
    edge: Indices
    start: list[int]
    count: Indices
    influence: Values


@dataclass(slots=True)
class _Waterfall:
    """The state of one run; arrays of clients are in rank order (degree descending, then index)."""

    n: int
    uniform: bool
    share: float
    bounds: list[int]
    p: Values
    p_by_rank: Values
    larger: _Side
    equal: _Side
    smaller: _Side
    sigma: Values
    assigned: Values
    scale_larger: Values
    scale_equal: Values
    a: Values
    rank: Indices

    @staticmethod
    def of(topology: Topology, p: Influence) -> _Waterfall:
        n, degrees = topology.n, topology.degrees
        order = np.argsort(-degrees, kind="stable")
        rank = np.empty(n, dtype=np.int64)
        rank[order] = np.arange(n)
        bounds = _class_bounds(degrees[order])
        larger, equal, smaller = _sides(topology, p, order, rank, bounds)
        uniform = is_uniform(p)
        mine = p[order]
        return _Waterfall(
            n=n,
            uniform=uniform,
            share=1.0 - (0.0 if uniform else 1.0 / n),
            bounds=bounds,
            p=p,
            p_by_rank=mine,
            larger=larger,
            equal=equal,
            smaller=smaller,
            sigma=mine + equal.influence + smaller.influence,
            assigned=np.zeros(n),
            scale_larger=np.ones(n),
            scale_equal=np.ones(n),
            a=np.zeros(topology.m),
            rank=rank,
        )

    def run(self) -> Values:
        """Degree class after degree class, from the largest; then the scales c."""
        with np.errstate(divide="ignore", invalid="ignore"):
            for k in range(len(self.bounds) - 1):
                self._receive(k)
                self._tie(k)
                self._propose(k)
        self._accept()
        return self.a

    def _received(self, side: _Side, k: int) -> Values:
        """sum_j a_ij p_j over the half-edges of one kind, for the clients of class k."""
        part = slice(side.start[k], side.start[k + 1])
        terms = self.a[side.edge[part]] * self.p[side.neighbour[part]]
        first = self.bounds[k]
        return sum_by(side.row[part] - first, terms, self.bounds[k + 1] - first)

    def _receive(self, k: int) -> None:
        """Step 2: R, and the guards of clients that were assigned everything."""
        part = slice(self.bounds[k], self.bounds[k + 1])
        R = self.assigned[part]
        if self.larger.start[k] == self.larger.start[k + 1]:
            return
        R[:] = self._received(self.larger, k)
        last = (self.equal.count[part] == 0) & (self.smaller.count[part] == 0)
        most = 1.0 - 1.0 / self.n
        full = last & (most < R)
        self.scale_larger[part][full] = most / R[full]
        spent = ~last & (self.share - R <= EXHAUSTED)
        if spent.any():
            P = self.larger.influence[part][spent]
            target = self.share * P / (P + self.sigma[part][spent])
            self.scale_larger[part][spent] = target / R[spent]
            R[spent] = target

    def _tie(self, k: int) -> None:
        """Step 3: neighbours of equal degree agree; R becomes A."""
        side, part = self.equal, slice(self.bounds[k], self.bounds[k + 1])
        if side.start[k] != side.start[k + 1]:
            edges = slice(side.start[k], side.start[k + 1])
            i, j = side.row[edges], self.rank[side.neighbour[edges]]
            R, sigma = self.assigned, self.sigma
            left = self.share - np.maximum(R[i], R[j])
            self.a[side.edge[edges]] = left / np.maximum(sigma[i], sigma[j])
            R[part] += self._received(side, k)
        if self.uniform:
            self._guard_own(part)

    def _guard_own(self, part: slice) -> None:
        """Uniform p: if the own weight would fall below 1/n, take the share of a Metropolis client."""
        A, S = self.assigned[part], self.smaller.count[part]
        held = self.larger.count[part] + self.equal.count[part]
        open_ = self.equal.count[part] + S > 0
        own = (1.0 - A) / (S + 1)
        thin = open_ & (own < (1.0 - TIED) / self.n)
        if thin.any():
            target = held[thin] / (held[thin] + S[thin] + 1)
            scale = target / A[thin]
            self.scale_equal[part][thin] = scale
            self.scale_larger[part][thin] *= scale
            A[thin] = target

    def _propose(self, k: int) -> None:
        """Step 4: what is left goes to the smaller neighbours and to self, in proportion to p."""
        side, part = self.smaller, slice(self.bounds[k], self.bounds[k + 1])
        edges = slice(side.start[k], side.start[k + 1])
        if edges.start != edges.stop:
            r = (self.share - self.assigned[part]) / (self.p_by_rank[part] + side.influence[part])
            self.a[side.edge[edges]] = r[side.row[edges] - self.bounds[k]]

    def _accept(self) -> None:
        """Step 5: every edge is scaled by what its ends accepted."""
        side = self.larger
        self.a[side.edge] *= self.scale_larger[side.row]
        side = self.equal
        scale = np.minimum(self.scale_equal[side.row], self.scale_equal[self.rank[side.neighbour]])
        self.a[side.edge] = self.a[side.edge] * scale


def _class_bounds(descending: Indices) -> list[int]:
    """Where each run of equal degrees starts, and the end."""
    steps = np.flatnonzero(np.diff(descending)) + 1
    return [0, *steps.tolist(), len(descending)]


def _sides(
    topology: Topology, p: Influence, order: Indices, rank: Indices, bounds: list[int]
) -> tuple[_Side, _Side, _Side]:
    """All half-edges in rank order, parted into larger, equal and smaller neighbours."""
    counts = topology.degrees[order]
    row = np.repeat(np.arange(topology.n), counts)
    offset = topology.indptr[order] - (np.cumsum(counts) - counts)
    at = np.arange(len(row)) + np.repeat(offset, counts)
    neighbour, edge = topology.indices[at], topology.edge_ids[at]
    excess = topology.degrees[neighbour] - np.repeat(counts, counts)
    kinds = (excess > 0, excess == 0, excess < 0)
    larger, equal, smaller = (_side(row[kind], neighbour[kind], edge[kind], p, bounds) for kind in kinds)
    return larger, equal, smaller


def _side(row: Indices, neighbour: Indices, edge: Indices, p: Influence, bounds: list[int]) -> _Side:
    n = bounds[-1]
    return _Side(
        row=row,
        neighbour=neighbour,
        edge=edge,
        start=np.searchsorted(row, bounds).tolist(),
        count=np.bincount(row, minlength=n),
        influence=sum_by(row, p[neighbour], n),
    )
