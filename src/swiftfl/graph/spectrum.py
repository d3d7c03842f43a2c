"""The spectral gap of the expected matrix: how fast averaging mixes.

The expected matrix is W = I - Q, Q = sum_edges a_ij p_i p_j (e_i - e_j)(e_i - e_j)^T a weighted Laplacian.
With 0 = mu_1 < mu_2 <= ... <= mu_n the eigenvalues of Q,

    rho = max_{k >= 2} |1 - mu_k|^2,     1 - rho = min{ mu_2 (2 - mu_2), mu_n (2 - mu_n) }.

The gap is computed from mu, never as 1 - rho, so that tiny gaps keep their digits.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from swiftfl.errors import UserError
from swiftfl.graph.sums import Values, sum_by
from swiftfl.graph.topology import Topology

DENSE = 400
"""Up to this many clients all eigenvalues are computed."""


def laplacian(topology: Topology, edge_weights: Values) -> Any:
    """The sparse Laplacian (CSR) of these edge weights."""
    from scipy.sparse import coo_array

    i, j = topology.edges[:, 0], topology.edges[:, 1]
    total = sum_by(i, edge_weights, topology.n) + sum_by(j, edge_weights, topology.n)
    diagonal = np.arange(topology.n)
    data = np.concatenate([-edge_weights, -edge_weights, total])
    places = (np.concatenate([i, j, diagonal]), np.concatenate([j, i, diagonal]))
    return coo_array((data, places), shape=(topology.n, topology.n)).tocsr()


def spectral_gap(topology: Topology, edge_weights: Values) -> float:
    """1 - rho of I - Q with these edge weights a_ij p_i p_j; 1 for a single client."""
    if topology.n == 1:
        return 1.0
    Q = laplacian(topology, edge_weights)
    if topology.n <= DENSE:
        mu = np.linalg.eigvalsh(Q.toarray())
        return _gap(float(mu[1]), float(mu[-1]))
    largest = 2.0 * float(Q.diagonal().max())  # Gershgorin
    if largest > 1.0:
        largest = _largest(Q)
    return _gap(_second(Q), largest)


def gap_of_symmetric(Q: Any) -> float:
    """1 - rho of I - Q for any symmetric positive semi-definite Q (sparse) with one eigenvalue zero."""
    from scipy.sparse.linalg import eigsh

    n = Q.shape[0]
    if n == 1:
        return 1.0
    if n <= DENSE:
        mu = np.linalg.eigvalsh(Q.toarray())
        return _gap(float(mu[1]), float(mu[-1]))
    below = -1e-6 * float(Q.diagonal().max())
    smallest = eigsh(Q.tocsc(), k=2, sigma=below, v0=_start(n), return_eigenvectors=False)
    return _gap(float(smallest.max()), _largest(Q))


def _gap(second: float, largest: float) -> float:
    gap = second * (2.0 - second)
    return min(gap, largest * (2.0 - largest)) if largest > 1.0 else gap


def _start(n: int) -> Values:
    """A fixed start vector orthogonal to 1, so that results are reproducible."""
    v = np.random.Generator(np.random.Philox(key=n)).standard_normal(n)
    start: Values = v - v.mean()
    return start


def _largest(Q: Any) -> float:
    from scipy.sparse.linalg import eigsh

    return float(eigsh(Q, k=1, which="LA", v0=_start(Q.shape[0]), tol=1e-9, return_eigenvectors=False)[0])


def _second(Q: Any) -> float:
    """mu_2, by the first of three methods that succeeds.

    A short Lanczos run finds it on graphs that mix well; a factorisation, which is cheap on rings, grids
    and trees, on graphs that mix badly; preconditioned descent where scores are very uneven.
    """
    n = Q.shape[0]
    value = _second_direct(Q, restarts=10)
    thin = Q.nnz <= 6 * n  # at most 2.5 edges per client
    for method in (_second_inverse, _second_descent) if thin else (_second_descent, _second_inverse):
        if value is None:
            value = method(Q)
    if value is None:
        raise UserError(f"the spectral gap of this graph of {n} clients could not be computed")
    return value


def _second_descent(Q: Any) -> float | None:
    """LOBPCG with the diagonal as preconditioner, started at the clients that change least."""
    from scipy.sparse import diags_array
    from scipy.sparse.linalg import lobpcg

    n, scale = Q.shape[0], float(Q.diagonal().max())
    A = Q / scale
    d = A.diagonal()
    X = 1e-3 * np.random.Generator(np.random.Philox(key=n)).standard_normal((n, 4))
    X[np.argsort(d, kind="stable")[:4], np.arange(4)] = 1.0
    inverse = diags_array(1.0 / d).tocsr()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what did not converge is rejected below
        values, vectors = lobpcg(
            A, X, M=inverse, Y=np.ones((n, 1)), largest=False, tol=1e-5 * float(d.min()), maxiter=200
        )
    best = int(np.argmin(values))
    mu, v = float(values[best]), vectors[:, best]
    residual = float(np.linalg.norm(A @ v - mu * v) / np.linalg.norm(v))
    return scale * mu if residual <= 1e-4 * mu else None


def _second_direct(Q: Any, restarts: int) -> float | None:
    """Largest eigenvalue of (c I - Q) orthogonal to 1, if Lanczos converges within `restarts`."""
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

    n = Q.shape[0]
    c = 2.0 * float(Q.diagonal().max())

    def shifted(v: Values) -> Values:
        v = v - v.mean()
        out = c * v - Q @ v
        centred: Values = out - out.mean()
        return centred

    operator = LinearOperator((n, n), matvec=shifted, dtype=np.float64)
    try:
        found = eigsh(operator, k=1, which="LA", v0=_start(n), ncv=40, maxiter=restarts, tol=1e-10)
    except ArpackError:
        return None
    v = found[1][:, 0] - found[1][:, 0].mean()
    mu = float(v @ (Q @ v) / (v @ v))
    residual = float(np.linalg.norm(Q @ v - mu * v) / np.linalg.norm(v))
    return mu if residual <= 1e-3 * mu else None


def _second_inverse(Q: Any) -> float | None:
    """1 / largest eigenvalue of the pseudo-inverse; client 0 is grounded for the factorisation."""
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh, splu

    n = Q.shape[0]
    scale = float(Q.diagonal().max())
    try:
        factor = splu(
            (Q[1:, 1:] / scale).tocsc(),
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )
    except (MemoryError, RuntimeError):
        return None

    def inverse(b: Values) -> Values:
        b = b - b.mean()
        x = np.concatenate([[0.0], factor.solve(b[1:])])
        out: Values = x - x.mean()
        return out

    operator = LinearOperator((n, n), matvec=inverse, dtype=np.float64)
    try:
        top = eigsh(operator, k=1, which="LA", v0=_start(n), tol=1e-9, return_eigenvectors=False)
    except ArpackError:
        return None
    return scale / float(top[0])
