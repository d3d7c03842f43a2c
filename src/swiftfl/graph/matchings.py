"""MATCHA's ingredients: matchings, how often to use each, and the mixing parameter.

* A graph's edges are coloured so that edges that meet differ; each colour is a matching. Misra and
  Gries' method needs at most one colour more than the largest degree.
* Activation probabilities q maximise the algebraic connectivity lambda_2(sum_j q_j L_j) under the
  budget sum_j q_j <= budget * m, 0 <= q_j <= 1. Since lambda_2 is the minimum of v' L(q) v over unit
  v orthogonal to 1, each such v gives a linear bound; the bounds that matter are collected and the
  linear program solved until both agree (Kelley's cutting planes).
* With W = I - alpha sum_{j active} L_j and L_j^2 = 2 L_j:
  E[W'W] = I - 2 alpha Lbar + alpha^2 (Lbar^2 + 2 sum_j q_j (1 - q_j) L_j),
  and alpha minimises the largest eigenvalue of E[W'W] - J, a convex function of alpha.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from swiftfl.errors import UserError
from swiftfl.graph.topology import Topology

Matrix = npt.NDArray[np.float64]
_LARGEST = 1000
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class MatchingPlan:
    """Matchings as partners (matching, client) -> neighbour or -1, their probabilities, and alpha."""

    partner: npt.NDArray[np.int64]
    probabilities: Matrix
    alpha: float
    rho: float


def matching_plan(topology: Topology, budget: float = 0.5) -> MatchingPlan:
    """MATCHA's plan for a communication budget: the share of matchings that is active on average."""
    if not 0.0 < budget <= 1.0:
        raise UserError(f"the communication budget must be in (0, 1], not {budget}")
    if topology.n > _LARGEST:
        raise UserError(
            f"MATCHA's probabilities need dense eigenvalues: at most {_LARGEST} clients, not {topology.n}"
        )
    topology.require_connected()
    partner = matchings(topology)
    laplacians = [_laplacian(row) for row in partner]
    if not laplacians:
        return MatchingPlan(partner, np.empty(0), 0.0, 0.0)
    q = _probabilities(laplacians, budget)
    alpha, rho = _mixing(laplacians, q)
    return MatchingPlan(partner, q, alpha, rho)


def matchings(topology: Topology) -> npt.NDArray[np.int64]:
    """A decomposition of the edges into at most (largest degree + 1) matchings."""
    n = topology.n
    colours = int(topology.degrees.max(initial=0)) + 1
    at = np.full((colours, n), -1, dtype=np.int64)  # at[colour, client]: the partner of that colour
    for i, j in topology.edges.tolist():
        _colour_edge(at, i, j)
    return at[(at >= 0).any(axis=1)]


def _free(at: npt.NDArray[np.int64], v: int) -> int:
    return int(np.argmax(at[:, v] < 0))


def _colour_edge(at: npt.NDArray[np.int64], u: int, v: int) -> None:
    """A colour that is free at both ends, or Misra and Gries' way to make one.

    They rotate a fan of u's neighbours, after freeing a colour along a path of two colours.
    """
    common = np.flatnonzero((at[:, u] < 0) & (at[:, v] < 0))
    if common.size:
        at[common[0], u], at[common[0], v] = v, u
        return
    fan = _fan(at, u, v)
    c, d = _free(at, u), _free(at, fan[-1])
    _invert_path(at, u, c, d)
    fan = fan[: _still_a_fan(at, u, fan, d)]
    for this, after in itertools.pairwise(fan):
        colour = int(np.flatnonzero(at[:, u] == after)[0])
        at[colour, u] = at[colour, after] = -1
        at[colour, u], at[colour, this] = this, u
    at[d, u], at[d, fan[-1]] = fan[-1], u


def _fan(at: npt.NDArray[np.int64], u: int, v: int) -> list[int]:
    """Neighbours of u, from v on, each joined to u by a colour that is free at the one before."""
    fan = [v]
    while True:
        candidates = [
            int(at[colour, u])
            for colour in np.flatnonzero(at[:, fan[-1]] < 0)
            if at[colour, u] >= 0 and int(at[colour, u]) not in fan
        ]
        if not candidates:
            return fan
        fan.append(candidates[0])


def _invert_path(at: npt.NDArray[np.int64], u: int, c: int, d: int) -> None:
    """Swap colours c and d along the path from u whose edges alternate d, c, d, ..."""
    path, colour = [u], d
    while at[colour, path[-1]] >= 0:
        path.append(int(at[colour, path[-1]]))
        colour = c if colour == d else d
    edges = list(itertools.pairwise(path))
    for k, (a, b) in enumerate(edges):
        old = d if k % 2 == 0 else c
        at[old, a] = at[old, b] = -1
    for k, (a, b) in enumerate(edges):
        new = c if k % 2 == 0 else d
        at[new, a], at[new, b] = b, a


def _still_a_fan(at: npt.NDArray[np.int64], u: int, fan: list[int], d: int) -> int:
    """How much of the fan to rotate: up to the first vertex at which d is free."""
    for k, w in enumerate(fan):
        if k > 0:
            colour = int(np.flatnonzero(at[:, u] == w)[0])
            if at[colour, fan[k - 1]] >= 0:
                break
        if at[d, w] < 0:
            return k + 1
    raise AssertionError("Misra and Gries' fan has no vertex at which the colour is free")


def _laplacian(partner: npt.NDArray[np.int64]) -> Matrix:
    n = partner.size
    L = np.zeros((n, n))
    matched = np.flatnonzero(partner >= 0)
    L[matched, matched] = 1.0
    L[matched, partner[matched]] = -1.0
    return L


def _probabilities(laplacians: list[Matrix], budget: float) -> Matrix:
    m, n = len(laplacians), laplacians[0].shape[0]
    stack = np.stack(laplacians)
    q = np.full(m, min(1.0, budget))
    cuts: list[Matrix] = []
    for _ in range(500):
        values, vectors = np.linalg.eigh(np.tensordot(q, stack, axes=1) + np.full((n, n), 1.0))
        connectivity = values[0]
        near = vectors[:, values < connectivity + 1e-3 * max(1.0, connectivity)]
        cuts.extend(np.einsum("ia,mij,ja->am", near, stack, near))
        q, bound = _best_within(np.array(cuts), budget * m)
        reached = np.linalg.eigvalsh(np.tensordot(q, stack, axes=1))[1] if n > 1 else 0.0
        if bound - reached <= 1e-7 * max(1.0, bound):
            break
    return np.asarray(np.clip(q, 0.0, 1.0))


def _best_within(cuts: Matrix, total: float) -> tuple[Matrix, float]:
    """max t such that t <= cuts q, sum q <= total, 0 <= q <= 1."""
    from scipy.optimize import linprog  # takes long to load, and nobody else needs it

    m = cuts.shape[1]
    A = np.vstack([np.hstack([-cuts, np.ones((len(cuts), 1))]), np.append(np.ones(m), 0.0)])
    b = np.append(np.zeros(len(cuts)), total)
    solved = linprog(np.append(np.zeros(m), -1.0), A_ub=A, b_ub=b, bounds=[(0, 1)] * m + [(None, None)])
    x = np.asarray(solved.x, dtype=np.float64)
    return x[:m], float(x[m])


def _mixing(laplacians: list[Matrix], q: Matrix) -> tuple[float, float]:
    from scipy.optimize import minimize_scalar

    stack = np.stack(laplacians)
    n = stack.shape[1]
    mean = np.tensordot(q, stack, axes=1)
    spread = 2 * np.tensordot(q * (1 - q), stack, axes=1)
    J = np.full((n, n), 1 / n)

    def rho(alpha: float) -> float:
        second_moment = np.eye(n) - 2 * alpha * mean + alpha**2 * (mean @ mean + spread) - J
        return float(np.linalg.eigvalsh(second_moment)[-1])

    best = minimize_scalar(rho, bounds=(0.0, 1.0), method="bounded", options={"xatol": _TOLERANCE})
    return float(best.x), float(best.fun)
