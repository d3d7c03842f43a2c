"""How often clients really act, against the influence that their coefficients were made for.

In a live run client i acts at its own rate, so the expected matrix is the one of the true rates q:

    W = I + sum_i q_i (w_i - e_i) e_i^T

Its columns sum to one whatever q is. Its rows do only if q is the influence p that the coefficients
were made for; what is missing, sum_i q_i w_{k,i} - q_k, is the drift by which client k's model counts
for more or less than it should.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from swiftfl.vector import Weights

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RateReport:
    """Given and true influence of the members, and what the difference does to the expected matrix."""

    given: list[float]
    true: list[float]
    gap: float
    row_sum_error: float

    def row(self) -> dict[str, object]:
        return {
            "influence_given": [round(p, 6) for p in self.given],
            "influence_true": [round(q, 6) for q in self.true],
            "influence_gap": self.gap,
            "row_sum_error": self.row_sum_error,
        }


def rate_report(
    members: Sequence[int],
    given: Sequence[float],
    weights: Sequence[Weights],
    steps: Sequence[float],
    seconds: Sequence[float],
) -> RateReport:
    """Rates are steps per second of a client's own time; `gap` is the total variation of p and q.

    >>> ring = [Weights(0.5, {1: 0.5}), Weights(0.5, {0: 0.5})]
    >>> report = rate_report([0, 1], [0.5, 0.5], ring, steps=[30, 10], seconds=[1.0, 1.0])
    >>> report.true, report.gap, report.row_sum_error
    ([0.75, 0.25], 0.25, 0.25)
    """
    p = np.array([given[i] for i in members], dtype=np.float64)
    rates = np.array([steps[i] / seconds[i] if seconds[i] > 0 else 0.0 for i in members])
    p = p / p.sum()
    q = rates / rates.sum() if rates.sum() > 0 else p
    error = np.abs(row_sums(members, weights, q) - 1.0).max() if len(members) else 0.0
    return RateReport(p.tolist(), q.tolist(), float(np.abs(p - q).sum() / 2), float(error))


def row_sums(members: Sequence[int], weights: Sequence[Weights], q: Values) -> Values:
    """Of the expected matrix when member k acts with probability q_k; the lost count as self."""
    place = {i: position for position, i in enumerate(members)}
    sums = np.ones(len(members))
    for i in members:
        for k, coefficient in weights[i].of.items():
            if k in place:
                sums[place[k]] += q[place[i]] * coefficient
                sums[place[i]] -= q[place[i]] * coefficient
    return sums
