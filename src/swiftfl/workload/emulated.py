"""An accelerator that is not there: gradients are replaced by a sleep of the same length each."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from swiftfl.sample import Batch, Slope
from swiftfl.vector import Vector
from swiftfl.workload.base import Evaluation, Workload, follow, placed


class Emulated:
    """A workload whose gradients take `seconds` and no processor; they are zero, so models stay at x0.

    For measuring what communication costs beside a device that computes, on a machine without one.
    """

    def __init__(self, workload: Workload, seconds: float) -> None:
        self._workload, self.seconds = workload, seconds

    @property
    def name(self) -> str:
        return f"{self._workload.name}, emulated"

    @property
    def parameters(self) -> int:
        return self._workload.parameters

    @property
    def buffers(self) -> int:
        return self._workload.buffers

    def initial(self, seed: int) -> Vector:
        return self._workload.initial(seed)

    def place(self, x: Vector) -> Vector:
        return placed(self._workload, x)

    def gradient(self, x: Vector, batch: Batch) -> Slope:
        time.sleep(self.seconds)
        return Slope(np.zeros_like(x), 0.0)

    def gradients(self, xs: Sequence[Vector], batches: Sequence[Batch]) -> list[Slope]:
        return [self.gradient(x, batch) for x, batch in zip(xs, batches, strict=True)]

    def follow(self, epochs: Sequence[float]) -> None:
        follow(self._workload, epochs)

    def evaluate(self, xs: Sequence[Vector]) -> list[Evaluation]:
        return self._workload.evaluate(xs)
