"""A model as one flat vector: what clients compute with, send and average.

Vectors are one-dimensional NumPy arrays in host memory, because the model is what travels: a
transport needs it on the host anyway, and for small models NumPy's arithmetic costs a third of
torch's. A workload may compute its gradients on any device. A vector that was published is never
written again; every operation here makes a new one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Vector: TypeAlias = npt.NDArray[np.floating]
Memory: TypeAlias = Mapping[str, Vector]
"""What an update rule remembers between two steps: named arrays, never written in place."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Client i's communication vector w_i (column i): its own coefficient and its neighbours'.

    >>> w = Weights(own=0.5, of={1: 0.25, 2: 0.25})
    >>> w[2], w.own
    (0.25, 0.5)
    """

    own: float
    of: Mapping[int, float]

    def __getitem__(self, k: int) -> float:
        return self.of[k]


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a batch says about the running buffers: they move towards `values` at `rate`.

    Buffers are the tail of a vector; `values` and `rate` cover exactly that tail.
    """

    values: Vector
    rate: Vector | float


def mix(w: Weights, x: Vector, inbox: Mapping[int, Vector]) -> Vector:
    """Average own model `x` with the neighbours' models: sum_k w[k] x_k + w.own x.

    The weight of a neighbour that is not in the inbox (lost, or not heard of yet) stays with self,
    which keeps the column sum at one and the expected matrix symmetric. Models are taken one at a
    time, own first and then in the order of `w.of`, so that the result is the same in every world.
    """
    own = w.own
    if len(inbox) < len(w.of):
        own += sum(coefficient for k, coefficient in w.of.items() if k not in inbox)
    out = x * own
    for k, coefficient in w.of.items():
        if k in inbox:
            out += inbox[k] * coefficient
    return out


def advance(half: Vector, move: Vector, statistics: Statistics | None = None) -> Vector:
    """Lines 15 and after: half + move; running buffers follow (1 - rate) half + rate statistic."""
    out = half + move
    if statistics is not None:
        tail = half[-statistics.values.size :]
        out[-statistics.values.size :] = tail + statistics.rate * (statistics.values - tail)
    return out


def finite(x: Vector) -> bool:
    """Whether every number is finite: one dot product; each number is looked at only if that overflows.

    The overflow warns: engines call this under `numpy.errstate(all="ignore")`.
    """
    return math.isfinite(x.dot(x)) or bool(np.isfinite(x).all())


def consensus(models: Sequence[Vector]) -> Vector:
    """The plain average of the clients' models, accumulated in double precision."""
    total = np.zeros(models[0].size, dtype=np.float64)
    for model in models:
        total += model
    return (total / len(models)).astype(models[0].dtype, copy=False)


def consensus_distance(models: Sequence[Vector], centre: Vector) -> float:
    """Root mean square distance of the clients' models from `centre` (their average)."""
    total = 0.0
    for model in models:
        gap = model.astype(np.float64) - centre
        total += float(gap @ gap)
    return float(np.sqrt(total / len(models)))
