"""A batch of samples, and what the loss says on it: what passes between clients and workloads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from swiftfl.vector import Statistics, Vector


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
