"""Sums by client, one term after another in the order given: the same bits as a plain loop."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from swiftfl.graph.topology import Indices

Values: TypeAlias = npt.NDArray[np.float64]


def sum_by(row: Indices, terms: Values, n: int) -> Values:
    """out[i] = sum of the terms whose row is i. (`bincount` adds in order; `reduceat` and `sum` do not.)

    >>> sum_by(np.array([0, 0, 2]), np.array([0.5, 0.25, 1.0]), 3).tolist()
    [0.75, 0.0, 1.0]
    """
    return np.asarray(np.bincount(row, weights=terms, minlength=n), dtype=np.float64)
