"""The theorem's left-hand side on quadratics without a single draw: second moments, exactly.

In one coordinate with curvature m, client i's activation is linear in y = (x_1, ..., x_n, 1):

    x_i <- sum_j w_{j,i} x_j - gamma m (x_i - b_i) + gamma noise,     the others stay:   y <- M_i y + noise

Since i ~ p is drawn independently of y, the second moments S = E[y y^T] follow a linear map,

    S <- K S = sum_i p_i M_i S M_i^T + gamma^2 sigma_k^2 diag(p) S_{1,1}      (S_{1,1} = 1)

and E |grad f(mean of x)|^2 is a linear function l of S. The sum over t < T of l K^t S_0 takes log2(T)
squarings: r_0 = l, r_{k+1} = r_k + r_k K^(2^k). So T = 2^40 costs as little as T = 2^10. It gives
what a simulation must find on average, and the slope where T is out of a simulation's reach.
"""

from __future__ import annotations

import numpy as np

from swiftfl.errors import UserError
from swiftfl.graph import Coefficients
from swiftfl.reproduce.convergence.problems import Array, Bowl

LARGEST = 24
"""Clients up to which the map, a matrix of (n+1)^2 rows and columns, is kept."""


def averaged_gradient(problem: Bowl, coefficients: Coefficients, step_size: float, log2_T: int) -> float:
    """(1/T) sum_{t<T} E |grad f(x^t)|^2 under Algorithm 1 with C_0, for T = 2^log2_T."""
    n = coefficients.topology.n
    if problem.a or n > LARGEST:
        raise UserError(f"second moments are computed for quadratics of at most {LARGEST} clients")
    columns = np.stack([coefficients.active_matrix(i)[:, i] for i in range(n)])
    total = 0.0
    for k in range(problem.parameters):
        K = moment_map(columns, problem, k, step_size)
        y = np.append(np.full(n, problem.start[k]), 1.0)
        centre = np.append(np.full(n, 1.0 / n), -float(problem.p @ problem.b[:, k])) * problem.m[k]
        total += float(_sum_of_powers(np.kron(centre, centre), K, log2_T) @ np.kron(y, y))
    return total / 2.0**log2_T


def moment_map(columns: Array, problem: Bowl, k: int, step_size: float) -> Array:
    """K for coordinate k, as a matrix on S written row by row; `columns[i]` is w_i."""
    n = len(columns)
    size = (n + 1) ** 2
    K = np.zeros((size, size))
    for i in range(n):
        M = np.eye(n + 1)
        M[i, :n] = columns[i]
        M[i, i] -= step_size * problem.m[k]
        M[i, n] = step_size * problem.m[k] * problem.b[i, k]
        K += problem.p[i] * np.kron(M, M)
        K[i * (n + 1) + i, size - 1] += problem.p[i] * step_size**2 * problem.sigma**2 / problem.parameters
    return K


def _sum_of_powers(row: Array, K: Array, doublings: int) -> Array:
    """row (I + K + ... + K^(2^doublings - 1))."""
    for k in range(doublings):
        row = row + row @ K
        if k + 1 < doublings:
            K = K @ K
    return row
