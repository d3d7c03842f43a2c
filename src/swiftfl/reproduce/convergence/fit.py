"""Slopes in log-log, with their standard errors; and where a falling curve meets a level."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class FittedSlope:
    """The mean of the seeds' slopes; its standard error over seeds, None with one seed."""

    slope: float
    error: float | None
    seeds: int

    def as_json(self) -> dict[str, float | int | None]:
        return {"slope": self.slope, "error": self.error, "seeds": self.seeds}


def power(x: Sequence[float], y: Sequence[float]) -> float:
    """The exponent e of y ~ x^e, by least squares in logarithms.

    >>> round(power([1, 4, 16], [3, 1.5, 0.75]), 12)
    -0.5
    """
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def slope_over_seeds(x: Sequence[float], curves: Sequence[Sequence[float]]) -> FittedSlope:
    """Fit each seed's curve by itself: seeds are independent, points of one seed need not be."""
    slopes = [power(x, curve) for curve in curves]
    error = float(np.std(slopes, ddof=1) / math.sqrt(len(slopes))) if len(slopes) > 1 else None
    return FittedSlope(float(np.mean(slopes)), error, len(slopes))


def first_below(x: Sequence[float], y: Sequence[float], level: float) -> float | None:
    """Where y falls to `level` for good on this grid, by a straight line in log-log; None if it does not.

    >>> first_below([1, 100], [1, 0.01], 0.1)
    10.0
    """
    above = [k for k, value in enumerate(y) if not value <= level]
    if not above:
        return float(x[0])
    k = above[-1]
    if k + 1 == len(y):
        return None
    if not math.isfinite(y[k]):
        return float(x[k + 1])
    share = math.log(y[k] / level) / math.log(y[k] / y[k + 1])
    return round(float(math.exp(math.log(x[k]) + share * math.log(x[k + 1] / x[k]))), 9)
