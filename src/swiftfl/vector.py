"""A model as one flat vector: what clients compute with, send and average.

Vectors are one-dimensional NumPy arrays in host memory: for small models NumPy's arithmetic costs a third
of torch's. Where gradients are computed on another device, the models live there, too, as tensors that
stand in for NumPy arrays (`workload/device_vector.py`), and only what is published comes down to the host.
A vector that was published is never written again; every operation here makes a new one.

Large vectors (`LARGE`) take as few passes over memory as there can be (`kernels`), in memory that is used
again (`recycled`), small ones as few calls of Python (`small`); the bits are those of plain NumPy calls.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from swiftfl.kernels import BLOCK, blocks, combine, copy, same_shapes
from swiftfl.recycled import LARGE, is_large, like
from swiftfl.small import calls

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
    if x.size < LARGE:
        quick = calls.mix(own, w.of, x, inbox)
        if quick is not None:
            return quick
    if missing := [coefficient for k, coefficient in w.of.items() if k not in inbox]:
        own += sum(missing)
    if x.size >= LARGE and is_large(x):
        of = [(coefficient, inbox[k]) for k, coefficient in w.of.items() if k in inbox]
        return combined([(own, x), *of])[0]
    out = x * own
    for k, coefficient in w.of.items():
        if k in inbox:
            out += inbox[k] * coefficient
    return out


def combined(terms: Sequence[tuple[float, Vector]]) -> tuple[Vector, bool]:
    """The sum of factor times vector, in this order, as a new vector; and whether it is finite."""
    out = like(terms[0][1])
    return out, combine(out, terms)


def advance(half: Vector, move: Vector, statistics: Statistics | None = None) -> Vector:
    """Lines 15 and after: half + move; running buffers follow (1 - rate) half + rate statistic."""
    if half.size >= LARGE and is_large(half, move):
        out = np.add(half, move, out=like(half))
    else:
        out = half + move
    if statistics is not None:
        follow(out, half, statistics)
    return out


def follow(out: Vector, half: Vector, statistics: Statistics) -> None:
    """Put running buffers into `out`: where those of `half` move to."""
    tail = half[-statistics.values.size :]
    out[-statistics.values.size :] = tail + statistics.rate * (statistics.values - tail)


def copied(x: Vector) -> Vector:
    """A copy, for somebody who may write into it."""
    if not isinstance(x, np.ndarray):
        return x.copy()  # on its device
    out = like(x)
    copy(out, x)
    return out


def halfway(x: Vector, y: Vector) -> Vector:
    """0.5 (x + y): the sum first, because halves of tiny numbers would be rounded each on its own."""
    if not is_large(x, y):
        return 0.5 * (x + y)
    same_shapes(x, y)
    out = like(x)
    for part in blocks(x.size):
        total = np.add(x[part], y[part], out=out[part])
        total *= 0.5
    return out


def meet(x: Vector, other: Vector) -> tuple[Vector, Vector]:
    """x after half of the way to another model, and the step that it took: x + step, 0.5 (other - x)."""
    if not is_large(x, other):
        step = 0.5 * (other - x)
        return x + step, step
    same_shapes(x, other)
    out, whole = like(x), like(x)
    for part in blocks(x.size):
        step = np.subtract(other[part], x[part], out=whole[part])
        step *= 0.5
        np.add(x[part], step, out=out[part])
    return out, whole


def retreat(x: Vector, step: Vector) -> Vector:
    """x - step: what `advance` does, in the opposite direction."""
    return np.subtract(x, step, out=like(x)) if is_large(x, step) else x - step


def weighted_mean(given: Sequence[tuple[float, Vector]], out: Vector | None = None) -> Vector:
    """The mean of vectors by their weights, added up in this order from 0; in `out`, if it is given.

    >>> weighted_mean([(1.0, np.array([2.0])), (3.0, np.array([6.0]))])
    array([5.])
    """
    first = given[0][1]
    weights, found = sum(weight for weight, _ in given), like(first) if out is None else out
    same_shapes(found, *(x for _, x in given))
    spare: Vector = np.empty(min(BLOCK, first.size), dtype=found.dtype)
    for part in blocks(first.size):
        total = found[part]
        total[:] = 0.0
        for weight, x in given:
            total += np.multiply(x[part], weight, out=spare[: total.size])
        total /= weights
    return found


def narrow(x: Vector, dtype: np.dtype[np.floating]) -> Vector:
    """Numbers of double precision as a vector of the model's: each as two numbers where that is less precise.

    >>> third = narrow(np.array([1 / 3]), np.dtype(np.float32))
    >>> third.size, bool(abs(wide(third, third)[0] - 1 / 3) < 1e-15)
    (2, True)
    """
    if dtype == x.dtype:
        return x
    high = x.astype(dtype)
    out: Vector = np.concatenate((high, (x - high).astype(dtype)))
    return out


def wide(x: Vector, like: Vector) -> Vector:
    """The numbers of double precision that `narrow` made a vector like this of; never the vector itself."""
    if like.dtype == np.float64:
        return np.array(x)
    half = x.size // 2
    out: Vector = x[:half].astype(np.float64)
    out += x[half:]
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
