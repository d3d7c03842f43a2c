"""Gradients that hide each sample: clipped one by one, with noise on their sum.

With C the clipping norm and z the noise multiplier, the gradient of a batch of B samples is

    g = (sum_k g_k min(1, C / |g_k|) + z C N(0, I)) / B

so that one sample moves the sum by at most C, which is hidden in noise of standard deviation z C: the
Gaussian mechanism. Everything that a client sends is made from such gradients and from what others sent.
How much of a sample that leaves to be known is told by an accountant (`experiment.accountant`).
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence

import numpy as np

from swiftfl.errors import UserError
from swiftfl.sample import Batch, Slope
from swiftfl.vector import Vector
from swiftfl.workload.base import Evaluation, Workload, follow

_AT_ONCE = 64 << 20
"""Bytes of gradients of single samples that are held at a time."""


class Private:
    """A workload whose gradients are clipped by sample and noisy.

    The gradients of single samples are those of batches of one, taken together as the workload takes those
    of many clients. The noise is drawn by a key, the client, its counter and the model: asked again at the
    same model it is the same, so that runs can be repeated; at another model it is another, so that nobody
    can subtract two answers. The key is the seed, which others may know, or with `secret` a new secret of
    this process.
    """

    def __init__(
        self, workload: Workload, clip: float, noise: float, seed: int, secret: bool = False
    ) -> None:
        if workload.buffers:
            raise UserError(
                f"privacy: {workload.name} has running statistics, which would leave without noise: use a "
                "model without batch norm (--norm group)"
            )
        self._workload, self._clip, self._noise_multiplier = workload, clip, noise
        self._key = secrets.token_bytes(32) if secret else hashlib.sha256(f"noise/{seed}".encode()).digest()

    @property
    def name(self) -> str:
        return self._workload.name

    @property
    def parameters(self) -> int:
        return self._workload.parameters

    @property
    def buffers(self) -> int:
        return 0

    def initial(self, seed: int) -> Vector:
        return self._workload.initial(seed)

    def gradient(self, x: Vector, batch: Batch) -> Slope:
        total, loss, size = np.zeros(x.size), 0.0, batch.indices.size
        step = max(1, _AT_ONCE // x.nbytes)
        for start in range(0, size, step):
            singles = [
                Batch(batch.client, batch.counter, batch.indices[k : k + 1])
                for k in range(start, min(start + step, size))
            ]
            for slope in self._workload.gradients([x] * len(singles), singles):
                total += clipped(slope.g, self._clip)
                loss += slope.loss / size
        total += self._noise_multiplier * self._clip * self._noise(x, batch)
        return Slope((total / size).astype(x.dtype), loss)

    def gradients(self, xs: Sequence[Vector], batches: Sequence[Batch]) -> list[Slope]:
        return [self.gradient(x, batch) for x, batch in zip(xs, batches, strict=True)]

    def follow(self, epochs: Sequence[float]) -> None:
        follow(self._workload, epochs)

    def evaluate(self, xs: Sequence[Vector]) -> list[Evaluation]:
        return self._workload.evaluate(xs)

    def _noise(self, x: Vector, batch: Batch) -> Vector:
        about = hashlib.blake2b(key=self._key, digest_size=32)
        about.update(f"{batch.client}/{batch.counter}/".encode())
        about.update(np.ascontiguousarray(x).view(np.uint8).data)
        seed = np.frombuffer(about.digest(), dtype="<u4")
        return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed.tolist()))).normal(
            size=x.size
        )


def clipped(g: Vector, most: float) -> Vector:
    """A vector no longer than `most`; one that is not finite counts as none.

    >>> clipped(np.array([3.0, 4.0]), 1.0).tolist(), clipped(np.array([0.3, np.nan]), 1.0).tolist()
    ([0.6000000000000001, 0.8], [0.0, 0.0])
    """
    wide = g.astype(np.float64)
    norm = float(np.linalg.norm(wide))
    if not np.isfinite(norm):
        return np.zeros_like(wide)
    return wide * min(1.0, most / norm) if norm > 0 else wide
