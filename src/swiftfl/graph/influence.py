"""Influence scores p: how often each client is the active one, and how much its model counts.

A score vector is float64, positive and sums to one. A score of zero is refused: it would force
zero weights, and condition (c), every edge's weight is positive, could not hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from swiftfl.errors import UserError
from swiftfl.graph.topology import checked_clients

Influence: TypeAlias = npt.NDArray[np.float64]

SUM_TOLERANCE = 1e-6
"""Given scores may miss the sum 1 by this much (rounded input); they are then divided by their sum."""
SMALLEST = 1e-100
"""Scores below this are refused: their reciprocals would leave the range of floating point."""
UNIFORM_TOLERANCE = 1e-12


def uniform(n: int) -> Influence:
    """p_i = 1/n for every client.

    >>> uniform(4).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    n = checked_clients(n)
    return _frozen(np.full(n, 1.0 / n))


def proportional_to(sizes: Sequence[float] | npt.NDArray[np.number]) -> Influence:
    """p_i = size_i / sum of sizes, for instance of the clients' data.

    >>> proportional_to([1, 3]).tolist()
    [0.25, 0.75]
    """
    values = _numbers(sizes, "size")
    if len(values) == 0:
        raise UserError("influence needs at least one client, and no sizes were given")
    _check_positive(values, "size")
    return _normalised(values / values.max(), "size")


def given(values: Sequence[float] | npt.NDArray[np.number], n: int | None = None) -> Influence:
    """Scores as given: finite, positive, `n` of them, summing to 1 within 1e-6; then renormalised."""
    scores = _numbers(values, "influence")
    if n is not None and len(scores) != n:
        raise UserError(f"influence has {len(scores)} scores, but there are {n} clients")
    if len(scores) == 0:
        raise UserError("influence needs at least one client, and no scores were given")
    _check_positive(scores, "influence")
    total = float(scores.sum())
    if abs(total - 1.0) > SUM_TOLERANCE:
        raise UserError(f"influence sums to {total:.9g}, not to 1 (divide the scores by their sum)")
    return _normalised(scores, "influence")


def is_uniform(p: Influence) -> bool:
    """Whether `max_i |n p_i - 1| <= 1e-12`: decided once, for the whole graph."""
    return bool(np.abs(len(p) * p - 1.0).max() <= UNIFORM_TOLERANCE)


def _numbers(values: Sequence[float] | npt.NDArray[np.number], what: str) -> Influence:
    try:
        numbers = np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"every {what} must be a number") from None
    if numbers.ndim != 1:
        raise UserError(f"{what} must be one number per client, not an array of shape {numbers.shape}")
    return numbers


def _check_positive(values: Influence, what: str) -> None:
    bad = ~(np.isfinite(values) & (values > 0))
    if bad.any():
        i = int(np.argmax(bad))
        raise UserError(f"client {i}: {what} {values[i]:g} must be a positive number")


def _normalised(values: Influence, what: str) -> Influence:
    total = values.sum()
    p = values if abs(total - 1.0) <= UNIFORM_TOLERANCE else values / total  # normalised stays as it is
    if p.min() < SMALLEST:
        i = int(p.argmin())
        raise UserError(f"client {i}: {what} is below {SMALLEST:g} of the whole, too small to compute with")
    return _frozen(p)


def _frozen(p: Influence) -> Influence:
    p.setflags(write=False)
    return p
