"""Two problems of which every constant of the paper's assumptions is known in closed form.

    f_i(x) = sum_k  m_k/2 (x_k - b_ik)^2 + a (1 - cos(w x_k - s_ik)),      f = sum_i p_i f_i

With a = 0 this is a quadratic (`convex`); with a w^2 > m it is a bowl with ripples, which has many
stationary points (`rippled`). Gradients carry Gaussian noise. Then

    L       = max_k m_k + a w^2                   the second derivative is m_k + a w^2 cos(.)
    sigma^2 = d noise^2                           additive noise: the same at every x
    zeta    = |m (b_i - b)| + ripples             root mean square over i ~ p; exact if either is zero
    f*      : b if a = 0, else a search in one dimension per coordinate

The ripples' part of zeta: with z_k = sum_i p_i exp(-i s_ik) and z'_k = sum_i p_i exp(-2i s_ik), the
variance of sin(t - s_ik) over i ~ p is (1 - |z|^2 + Re[exp(2it) (z^2 - z')]) / 2, whose largest value
over t is (1 - |z|^2 + |z^2 - z'|) / 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from swiftfl.errors import UserError
from swiftfl.sample import Batch, Slope
from swiftfl.streams import stream
from swiftfl.vector import Vector
from swiftfl.workload.base import Evaluation

Array = npt.NDArray[np.float64]
DIMENSION = 10
SIGMA = 1.0
ZETA = 1.0
_BLOCK = 256


class Bowl:
    """The workload above; `m` is (d,), `b` and `s` are (clients, d), `start` is x^0."""

    name = "bowl"
    buffers = 0

    def __init__(
        self,
        m: Array,
        b: Array,
        p: Sequence[float] | Array,
        start: Array,
        *,
        a: float = 0.0,
        w: float = 1.0,
        s: Array | None = None,
        sigma: float = SIGMA,
        seed: int = 0,
    ) -> None:
        self.m, self.b, self.p, self.start = m, b, np.asarray(p, np.float64), start
        self.a, self.w, self.s = a, w, np.zeros_like(b) if s is None else s
        self.clients, self.parameters = b.shape
        if self.s.shape != b.shape or self.p.shape != b.shape[:1] or m.shape != b.shape[1:]:
            raise UserError("m, b, s and p do not belong to one problem")
        self.sigma, self.seed = sigma, seed
        self._noise: dict[int, tuple[int, Array]] = {}

    # --- what the theorem needs to know ----------------------------------------------------------

    @property
    def L(self) -> float:  # noqa: N802 (the paper's letter)
        return float(self.m.max() + self.a * self.w**2)

    @property
    def smallest_curvature(self) -> float:
        """A lower bound of every second derivative of every f_i: negative where f_i is not convex."""
        return float(self.m.min() - self.a * self.w**2)

    @property
    def zeta(self) -> float:
        """An upper bound of zeta, and its value where targets or phases are the same for all clients."""
        spread = self.m * (self.b - self.p @ self.b)
        bowls = np.sqrt(self.p @ (spread**2).sum(axis=1))
        z, z2 = (self.p @ np.exp(-1j * k * self.s) for k in (1, 2))
        variance = 0.5 * (1.0 - np.abs(z) ** 2 + np.abs(z**2 - z2))
        return float(bowls + self.a * self.w * np.sqrt(np.maximum(variance, 0.0).sum()))

    @cached_property
    def minimum(self) -> float:
        """f* = min f."""
        return float(self.f(self.minimiser[None])[0])

    @cached_property
    def minimiser(self) -> Array:
        """Coordinate by coordinate: b for quadratics, else a fine grid and then Newton's steps."""
        centre = self.p @ self.b
        if not self.a:
            return centre
        # At a stationary point m |x - centre| <= a w.
        reach = self.a * self.w / self.m
        x: Array = centre + reach * np.linspace(-1.0, 1.0, 20_001)[:, None]
        best = np.take_along_axis(x, self._by_coordinate(x).argmin(axis=0)[None], axis=0)
        for _ in range(20):
            phase = self.w * best - self.s
            curvature = self.m + self.a * self.w**2 * (self.p @ np.cos(phase))
            best = best - self.gradients_of_f(best) / curvature
        found: Array = best[0]
        return found

    @cached_property
    def gap(self) -> float:
        """Delta_f = f(x^0) - f*."""
        return float(self.f(self.start[None])[0]) - self.minimum

    def _by_coordinate(self, x: Array) -> Array:
        """f at many points, (points, d), coordinate by coordinate."""
        total = np.zeros_like(x)
        for p, b, s in zip(self.p, self.b, self.s, strict=True):
            total += p * (0.5 * self.m * (x - b) ** 2 + self.a * (1.0 - np.cos(self.w * x - s)))
        return total

    def f(self, x: Array) -> Array:
        """f at many points, (points, d)."""
        out: Array = self._by_coordinate(x).sum(axis=1)
        return out

    def gradients_of_f(self, x: Array) -> Array:
        """The gradient of f at many points, (points, d)."""
        out: Array = self.m * (x - self.p @ self.b)
        if self.a:
            # sum_i p_i sin(t - s_i) = Im(exp(it) z)
            z = self.p @ np.exp(-1j * self.s)
            out = out + self.a * self.w * np.imag(np.exp(1j * self.w * x) * z)
        return out

    def weighted(self, p: Sequence[float] | Array) -> Bowl:
        """The same clients under another influence: another f."""
        return Bowl(
            self.m, self.b, p, self.start, a=self.a, w=self.w, s=self.s, sigma=self.sigma, seed=self.seed
        )

    # --- what an engine needs to know ------------------------------------------------------------

    def initial(self, seed: int) -> Vector:
        return self.start

    def exact(self, x: Vector, client: int) -> Vector:
        """The gradient of f_i at x without noise."""
        out: Vector = self.m * (x - self.b[client])
        if self.a:
            out = out + (self.a * self.w) * np.sin(self.w * x - self.s[client])
        return out

    def gradient(self, x: Vector, batch: Batch) -> Slope:
        return Slope(self.exact(x, batch.client) + self.noise(batch.client, batch.counter), 0.0)

    def noise(self, client: int, counter: int) -> Array:
        """By (client, counter), drawn in blocks: a draw by itself would cost as much as the whole step."""
        block, position = divmod(counter, _BLOCK)
        kept = self._noise.get(client)
        if kept is None or kept[0] != block:
            draw = stream(self.seed, "noise", client, block)
            scale = self.sigma / np.sqrt(self.parameters)
            kept = self._noise[client] = (block, scale * draw.standard_normal((_BLOCK, self.parameters)))
        drawn: Array = kept[1][position]
        return drawn

    def gradients(self, xs: Sequence[Vector], batches: Sequence[Batch]) -> list[Slope]:
        return [self.gradient(x, batch) for x, batch in zip(xs, batches, strict=True)]

    def evaluate(self, xs: Sequence[Vector]) -> list[Evaluation]:
        return [Evaluation(float(value), None) for value in self.f(np.asarray(xs, np.float64))]


def convex(p: Sequence[float] | Array, iid: bool, seed: int = 0, gap: float = 1.0) -> Bowl:
    """Curvatures from 0.25 to 1, Delta_f = `gap`; targets differ by zeta = 1, or not at all."""
    p = np.asarray(p, np.float64)
    m = np.linspace(0.25, 1.0, DIMENSION)
    b = np.zeros((len(p), DIMENSION))
    if not iid:
        b = stream(0, "targets").standard_normal(b.shape)
        b -= p @ b
        b *= ZETA / np.sqrt(p @ ((m * b) ** 2).sum(axis=1))
    start = p @ b + np.sqrt(2.0 * gap / m.sum())
    return Bowl(m, b, p, start, seed=seed)


def rippled(p: Sequence[float] | Array, iid: bool, seed: int = 0) -> Bowl:
    """A shallow bowl, m = 0.1, with ripples of curvature up to 0.9; clients' ripples are shifted, or not.

    Two coordinates start near the top of a ripple, where f is concave.
    """
    m = np.full(DIMENSION, 0.1)
    b = np.zeros((len(p), DIMENSION))
    s = np.zeros_like(b)
    if not iid:
        s = 0.7 * np.where(stream(0, "phases").random(b.shape) < 0.5, -1.0, 1.0)
    start = np.full(DIMENSION, 0.2)
    start[:2] = 1.5
    return Bowl(m, b, p, start, a=0.225, w=2.0, s=s, seed=seed)


PROBLEMS = {"convex": convex, "rippled": rippled}
