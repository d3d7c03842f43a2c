"""The coefficients of largest spectral gap: a semidefinite program, solved by Newton steps on a barrier.

Maximise t over (a, t), where Q(a) = sum_edges a_ij p_i p_j (e_i - e_j)(e_i - e_j)^T, subject to

    Q(a) - t I > 0 orthogonal to 1,       lambda_2 <= 1 - t
    (2 - t) I - Q(a) > 0,                 lambda_n >= -(1 - t)
    sum_j a_ij p_j < 1 - 1/n,             (b)
    a_ij > floor_ij,                      (c); the floor is a thousandth of the Metropolis coefficient

The second derivatives of log det are squares of effective resistances, G o G with G = B^T M^-1 B, so
that one Newton step is a dense solve in the number of edges: for graphs of up to `MOST_EDGES` edges.

Scores of very different sizes (a smallest of 1e-9 and less) leave matrices that floating point cannot
tell from singular ones. The path then ends at the last point that is known to satisfy (b) and (c), after
at most `MOST_STEPS` steps, and the result is the best of the simple methods (Metropolis, CCS, CCS by rate) if
that point is no better, or if there is no point to start from: always valid, never slower than any of them by
more than `ACCURACY`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from swiftfl.errors import UserError
from swiftfl.graph.by_rate import ccs_by_rate_edges
from swiftfl.graph.ccs import ccs_edges
from swiftfl.graph.influence import Influence
from swiftfl.graph.metropolis import metropolis_edges
from swiftfl.graph.spectrum import spectral_gap
from swiftfl.graph.sums import Values
from swiftfl.graph.topology import Indices, Topology

Matrix = npt.NDArray[np.float64]

MOST_EDGES = 2000
MOST_CLIENTS = 600
FLOOR = 0.001
ACCURACY = 1e-5
"""The gap found is within this fraction of the largest possible."""
MOST_STEPS = 400
"""Newton steps in all; ordinary scores need 40 to 110."""


def fastest_edges(topology: Topology, p: Influence) -> Values:
    """The coefficients of largest spectral gap, for small graphs."""
    if topology.n == 1:
        return np.zeros(0)
    if topology.m > MOST_EDGES or topology.n > MOST_CLIENTS:
        raise UserError(
            f"'fastest' is for graphs of up to {MOST_CLIENTS} clients and {MOST_EDGES} edges,"
            f" not {topology.n} and {topology.m}: use ccs_by_rate"
        )
    simple = metropolis_edges(topology, p)
    with np.errstate(all="ignore"):  # what is not finite is not taken
        best = _Barrier.of(topology, p, simple).solve()
    return _unless_slower(best, [simple, ccs_edges(topology, p), ccs_by_rate_edges(topology, p)], topology, p)


def _unless_slower(best: Values | None, others: list[Values], topology: Topology, p: Influence) -> Values:
    """`best`, or the fastest of the others if that is faster."""
    both = p[topology.edges[:, 0]] * p[topology.edges[:, 1]]
    gaps = [spectral_gap(topology, a * both) for a in others]
    if best is not None and spectral_gap(topology, best * both) >= (1.0 - ACCURACY) * max(gaps):
        return best
    return others[int(np.argmax(gaps))]


@dataclass(slots=True)
class _Barrier:
    """The program in the scaled variables x = (a / a_metropolis, t / t_metropolis)."""

    edges: Indices
    unit: Values
    weight: Values
    unit_t: float
    load: Matrix
    n: int
    steps: int = 0

    @staticmethod
    def of(topology: Topology, p: Influence, unit: Values) -> _Barrier:
        n, edges = topology.n, topology.edges
        weight = unit * p[edges[:, 0]] * p[edges[:, 1]]
        load = np.zeros((n, topology.m))
        index = np.arange(topology.m)
        load[edges[:, 0], index] = unit * p[edges[:, 1]]
        load[edges[:, 1], index] = unit * p[edges[:, 0]]
        problem = _Barrier(edges, unit, weight, 1.0, load, n)
        mu = np.linalg.eigvalsh(problem.laplacian(np.ones(topology.m)))
        problem.unit_t = float(min(mu[1], 2.0 - mu[-1]))
        return problem

    def laplacian(self, x: Values) -> Matrix:
        i, j, w = self.edges[:, 0], self.edges[:, 1], self.weight * x
        Q: Matrix = np.zeros((self.n, self.n))
        Q[i, j] = Q[j, i] = -w
        Q[np.arange(self.n), np.arange(self.n)] = -Q.sum(axis=1)
        return Q

    def solve(self) -> Values | None:
        """Follow the central path from 0.9 of Metropolis until the bound on the error is small.

        None if floating point cannot tell the start from an infeasible point.
        """
        m = len(self.unit)
        x = np.append(np.full(m, 0.9), 0.45)
        terms = 3 * self.n + m
        sharpness = 1.0
        if self.unit_t <= 0.0 or not math.isfinite(self._value(x, sharpness)):
            return None
        while terms / sharpness > ACCURACY * x[m] and self.steps < MOST_STEPS:
            sharpness *= 5.0
            x = self._centre(x, sharpness)
        best: Values = self.unit * x[:m]
        return best

    def _centre(self, x: Values, sharpness: float) -> Values:
        for _ in range(60):
            self.steps += 1
            try:
                gradient, hessian = self._derivatives(x, sharpness)
                damped = hessian + 1e-14 * np.diag(np.diag(hessian))
                step = np.linalg.solve(damped, gradient).astype(np.float64)
            except np.linalg.LinAlgError:
                self.steps = MOST_STEPS  # sharper problems are no less singular
                break
            decrement = float(gradient @ step)
            better = self._search(x, step, sharpness, decrement) if decrement >= 1e-6 else None
            if better is None:
                break
            x = better
        return x

    def _search(self, x: Values, step: Values, sharpness: float, decrement: float) -> Values | None:
        """The first better point along the step, halving; None if there is none."""
        value, size = self._value(x, sharpness), 1.0
        while size > 1e-10:
            trial: Values = x + size * step
            if self._value(trial, sharpness) >= value + 0.1 * size * decrement - 1e-9 * abs(value):
                return trial
            size *= 0.5
        return None

    def _matrices(self, x: Values) -> tuple[Matrix, Matrix, Values, Values]:
        """The four slacks, each of which must stay positive."""
        m = len(self.unit)
        Q, t, eye = self.laplacian(x[:m]), self.unit_t * x[m], np.eye(self.n)
        lower = Q - t * eye + 1.0 / self.n  # the vector 1 gets eigenvalue 1 - t instead of -t
        upper = (2.0 - t) * eye - Q
        return lower, upper, 1.0 - 1.0 / self.n - self.load @ x[:m], x[:m] - FLOOR

    def _value(self, x: Values, sharpness: float) -> float:
        lower, upper, spare, above = self._matrices(x)
        if spare.min() <= 0 or above.min() <= 0:
            return -np.inf
        try:
            roots = [np.diag(np.linalg.cholesky(M)) for M in (lower, upper)]
        except np.linalg.LinAlgError:
            return -np.inf
        logs = 2.0 * sum(float(np.log(root).sum()) for root in roots)
        return sharpness * float(x[-1]) + logs + float(np.log(spare).sum() + np.log(above).sum())

    def _derivatives(self, x: Values, sharpness: float) -> tuple[Values, Matrix]:
        """Gradient, and minus the second derivative, of sharpness * t + all the logarithms."""
        lower, upper, spare, above = self._matrices(x)
        m = len(self.unit)
        gradient, hessian = np.zeros(m + 1), np.zeros((m + 1, m + 1))
        gradient[m] = sharpness
        self._add_log_det(gradient, hessian, lower, 1.0)
        self._add_log_det(gradient, hessian, upper, -1.0)
        shares = self.load / spare[:, None]
        gradient[:m] += 1.0 / above - shares.sum(axis=0)
        hessian[:m, :m] += shares.T @ shares + np.diag(above**-2.0)
        return gradient, hessian

    def _add_log_det(self, gradient: Values, hessian: Matrix, M: Matrix, sign: float) -> None:
        """log det M with dM/da_e = sign w_e b_e b_e^T and dM/dt = -unit_t I."""
        m, i, j = len(self.unit), self.edges[:, 0], self.edges[:, 1]
        inverse = np.linalg.inv(M)
        square = inverse @ inverse
        G = inverse[i][:, i] - inverse[i][:, j] - inverse[j][:, i] + inverse[j][:, j]
        r2 = square[i, i] - 2.0 * square[i, j] + square[j, j]
        gradient[:m] += sign * self.weight * np.diag(G)
        gradient[m] -= self.unit_t * np.trace(inverse)
        hessian[:m, :m] += np.outer(self.weight, self.weight) * G**2
        cross = -sign * self.unit_t * self.weight * r2
        hessian[:m, m] += cross
        hessian[m, :m] += cross
        hessian[m, m] += self.unit_t**2 * np.trace(square)
