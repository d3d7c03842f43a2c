"""A batch of samples, and what the loss says on it: what passes between clients and workloads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from swiftfl.vector import Statistics, Vector, copied


@dataclass(slots=True)
class Batch:
    """Samples to train on: positions in the training set, and a key for whatever is random in them."""

    client: int
    counter: int
    indices: npt.NDArray[np.int64]


@dataclass(slots=True)
class Slope:
    """The reply to `Gradient`: the gradient, the batch's loss, and what it says of the buffers."""

    g: Vector
    loss: float
    statistics: Statistics | None = None

    def packed(self) -> Vector:
        """Gradient and statistics as one vector, to be averaged together."""
        if self.statistics is None:
            return self.g
        out = copied(self.g)
        out[-self.statistics.values.size :] = self.statistics.values
        return out

    def unpacked(self, mean: Vector) -> Slope:
        """What `packed` vectors' mean stands for."""
        if self.statistics is None:
            return Slope(mean, self.loss)
        size = self.statistics.values.size
        g = copied(mean)
        g[-size:] = 0
        return Slope(g, self.loss, Statistics(mean[-size:], self.statistics.rate))
