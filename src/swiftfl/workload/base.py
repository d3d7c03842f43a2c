"""What a workload is: a model and data behind flat vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

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


@dataclass(frozen=True, slots=True)
class GradientPiece:
    """Some gradients of a group that are computed in one go: their positions in the group, and the way."""

    members: Sequence[int]
    way: str


def follow(workload: object, epochs: Sequence[float]) -> None:
    """Tell a workload whose data shift where its clients are when it is asked to evaluate."""
    known = getattr(workload, "follow", None)
    if known is not None:
        known(epochs)


def placed(workload: object, x: Vector) -> Vector:
    """The vector where a workload computes, if it has such a place; models live where their gradients are."""
    place = getattr(workload, "place", None)
    return x if place is None else place(x)


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


class Divisible(Workload, Protocol):
    """A workload whose gradients may be computed piece by piece, in any order and in several processes.

    The pieces of a group follow from the group alone, never from who computes them: the same bits anywhere.
    Where gradients are `separable`, any clients may be a group.
    """

    @property
    def why_one_process(self) -> str | None:
        """Why a copy of this process cannot compute pieces (a GPU cannot be forked); None if it can.

        Some reasons show in the first gradient only.
        """

    @property
    def separable(self) -> bool:
        """Whether it is known that a gradient has the same bits in whatever group it is computed."""

    @property
    def rate(self) -> Vector | float:
        """The rate of all `Statistics`."""

    def pieces(self, xs: Sequence[Vector], batches: Sequence[Batch]) -> list[GradientPiece]:
        """How the gradients of this group are divided; batches of one piece have one size."""

    def piece(self, way: str, xs: Sequence[Vector], batches: Sequence[Batch]) -> list[Slope]:
        """The gradients of one piece."""

    def evaluates_apart(self, models: int) -> bool:
        """Whether so many models may be evaluated one by one, each in any process: the same bits."""


def divisible(workload: Workload) -> Divisible | None:
    """This workload, if its gradients can be computed piece by piece."""
    return cast(Divisible, workload) if hasattr(workload, "pieces") else None
