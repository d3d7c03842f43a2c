"""What a workload is: a model and data behind flat vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from swiftfl.sample import Batch, Slope
from swiftfl.vector import Vector


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How good a model is on the held-out data; `accuracy` is None where there is no such thing.

    `metrics` are those that were asked for by name (`workload.metrics`).
    """

    loss: float
    accuracy: float | None
    metrics: Mapping[str, float] = field(default_factory=dict)


class Workload(Protocol):
    """A learning problem. Vectors hold `parameters` trainable numbers, then `buffers` running ones."""

    @property
    def name(self) -> str: ...

    @property
    def parameters(self) -> int: ...

    @property
    def buffers(self) -> int: ...

    def initial(self, seed: int) -> Vector:
        """x^0, the same for every client."""

    def gradient(self, x: Vector, batch: Batch) -> Slope:
        """The mean gradient of the batch at x."""

    def gradients(self, xs: Sequence[Vector], batches: Sequence[Batch]) -> list[Slope]:
        """Many gradients at once; one by one or batched, whichever is faster."""

    def evaluate(self, xs: Sequence[Vector]) -> list[Evaluation]:
        """How good each of these models is on the held-out data."""
