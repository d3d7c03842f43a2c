"""Problems whose every constant is known: quadratics, and a workload whose gradients cost nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from swiftfl.errors import UserError
from swiftfl.sample import Batch, Slope
from swiftfl.streams import stream
from swiftfl.vector import Vector
from swiftfl.workload.base import Evaluation

Matrix = npt.NDArray[np.float64]


class Quadratic:
    """f_i(x) = 1/2 (x - b_i)^T A_i (x - b_i), and f = sum_i p_i f_i, in double precision.

    `curvature` holds A_i per client: (clients, d) for diagonals or (clients, d, d) for symmetric
    positive semi-definite matrices; `targets` holds b_i, (clients, d). `noise` is the standard
    deviation of each coordinate of the gradient noise, drawn by (client, counter).
    """

    name = "quadratic"
    buffers = 0

    def __init__(
        self,
        curvature: Matrix,
        targets: Matrix,
        *,
        influence: Sequence[float] | None = None,
        noise: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.A, self.b = np.asarray(curvature, np.float64), np.asarray(targets, np.float64)
        self.clients, self.parameters = _check_shapes(self.A, self.b)
        self.p = np.full(self.clients, 1 / self.clients) if influence is None else np.asarray(influence)
        if self.p.shape != (self.clients,) or not np.isclose(self.p.sum(), 1.0) or bool((self.p < 0).any()):
            raise UserError(f"influence must be {self.clients} numbers of at least 0 that sum to 1")
        if not noise >= 0:
            raise UserError(f"noise must not be negative, not {noise}")
        self.noise, self.seed = noise, seed

    @classmethod
    def random(
        cls,
        clients: int,
        dimension: int,
        seed: int = 0,
        *,
        dense: bool = False,
        same_curvature: bool = False,
        spread: float = 1.0,
        noise: float = 0.0,
    ) -> Quadratic:
        """Eigenvalues in [0.5, 1.5], targets `spread` apart; with `same_curvature` zeta is finite."""
        draw = stream(seed, "quadratic")
        count = 1 if same_curvature else clients
        A = draw.uniform(0.5, 1.5, (count, dimension))
        if dense:
            q = np.linalg.qr(draw.standard_normal((count, dimension, dimension)))[0]
            A = np.einsum("nij,nj,nkj->nik", q, A, q)
        A = np.repeat(A, clients // count, axis=0)
        b = spread * draw.standard_normal((clients, dimension))
        return cls(A, b, noise=noise, seed=seed)

    @property
    def L(self) -> float:  # noqa: N802 (the paper's letter)
        """The largest curvature of any f_i: each gradient is L-Lipschitz."""
        top = self.A if self.A.ndim == 2 else np.linalg.eigvalsh(self.A)
        return float(top.max())

    @property
    def sigma(self) -> float:
        """sigma of Assumption 3: E ||noise||^2 = sigma^2."""
        return self.noise * float(np.sqrt(self.parameters))

    @property
    def zeta(self) -> float:
        """zeta of Assumption 3: E_i ||grad f(x) - grad f_i(x)||^2 <= zeta^2 for all x.

        Infinite if the curvatures differ: the gap then grows with x.
        """
        if bool(np.ptp(self.A, axis=0).any()):
            return float("inf")
        slopes = np.array([self.exact(self.minimiser, i) for i in range(self.clients)])
        return float(np.sqrt(self.p @ (slopes**2).sum(axis=1)))

    @property
    def minimiser(self) -> Vector:
        """Where sum_i p_i A_i (x - b_i) = 0."""
        if self.A.ndim == 2:
            out: Vector = (self.p @ (self.A * self.b)) / (self.p @ self.A)
            return out
        right = np.einsum("n,nij,nj->i", self.p, self.A, self.b)
        return np.linalg.solve(np.einsum("n,nij->ij", self.p, self.A), right)

    def initial(self, seed: int) -> Vector:
        return stream(seed, "initial").standard_normal(self.parameters)

    def exact(self, x: Vector, client: int) -> Vector:
        """The gradient of f_i at x without noise."""
        gap = x - self.b[client]
        out: Vector = self.A[client] * gap if self.A.ndim == 2 else self.A[client] @ gap
        return out

    def gradient(self, x: Vector, batch: Batch) -> Slope:
        g = self.exact(x, batch.client)
        loss = 0.5 * float((x - self.b[batch.client]) @ g)
        if self.noise:
            draw = stream(self.seed, "noise", batch.client, batch.counter)
            g = g + self.noise * draw.standard_normal(self.parameters)
        return Slope(g, loss)

    def gradients(self, xs: Sequence[Vector], batches: Sequence[Batch]) -> list[Slope]:
        return [self.gradient(x, batch) for x, batch in zip(xs, batches, strict=True)]

    def evaluate(self, xs: Sequence[Vector]) -> list[Evaluation]:
        return [Evaluation(self._f(x), None) for x in xs]

    def _f(self, x: Vector) -> float:
        gap = x - self.b
        if self.A.ndim == 2:
            return 0.5 * float(self.p @ (self.A * gap * gap).sum(axis=1))
        return 0.5 * float(np.einsum("n,ni,nij,nj->", self.p, gap, self.A, gap))


class Linear:
    """f_i(x) = g_i^T x in double precision: gradients that are the same everywhere, so that moves add up."""

    name = "linear"
    buffers = 0

    def __init__(self, gradients: Matrix) -> None:
        self.g = np.asarray(gradients, np.float64)
        if self.g.ndim != 2 or not np.isfinite(self.g).all():
            raise UserError(f"gradients must be finite, one row per client, not of shape {self.g.shape}")
        self.parameters = self.g.shape[1]

    def initial(self, seed: int) -> Vector:
        return np.zeros(self.parameters)

    def gradient(self, x: Vector, batch: Batch) -> Slope:
        return Slope(self.g[batch.client], float(x @ self.g[batch.client]))

    def gradients(self, xs: Sequence[Vector], batches: Sequence[Batch]) -> list[Slope]:
        return [self.gradient(x, batch) for x, batch in zip(xs, batches, strict=True)]

    def evaluate(self, xs: Sequence[Vector]) -> list[Evaluation]:
        return [Evaluation(float(np.mean(self.g @ x)), None) for x in xs]


class Free:
    """f = 0: gradients cost nothing, so that a run's time is the engine's own."""

    name = "free"
    buffers = 0

    def __init__(self, parameters: int, dtype: npt.DTypeLike = np.float32) -> None:
        self.parameters = parameters
        self._slope = Slope(np.zeros(parameters, dtype), 0.0)

    def initial(self, seed: int) -> Vector:
        return stream(seed, "initial").standard_normal(self.parameters).astype(self._slope.g.dtype)

    def gradient(self, x: Vector, batch: Batch) -> Slope:
        return self._slope

    def gradients(self, xs: Sequence[Vector], batches: Sequence[Batch]) -> list[Slope]:
        return [self._slope] * len(xs)

    def evaluate(self, xs: Sequence[Vector]) -> list[Evaluation]:
        return [Evaluation(0.0, None)] * len(xs)


def _check_shapes(A: Matrix, b: Matrix) -> tuple[int, int]:
    if b.ndim != 2 or A.shape not in (b.shape, (*b.shape, b.shape[-1])):
        raise UserError(f"curvature {A.shape} does not fit targets {b.shape}: want (n, d) or (n, d, d)")
    if not (np.isfinite(A).all() and np.isfinite(b).all()):
        raise UserError("curvature and targets must be finite")
    return b.shape[0], b.shape[1]
