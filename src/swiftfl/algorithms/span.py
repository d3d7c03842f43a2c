"""How much time a step of SWIFT spans, in steps, by the ages of the models that it averages.

See docs/step-size.md.

Neighbours' models that are a_k steps old and one's own, which is 1 step old, average to a model that is
s = w_ii + sum_k w_ki a_k steps old. A step that is s times as long moves the mean of all models as far per
unit of time as D-SGD's does.
"""

from __future__ import annotations

from collections.abc import Mapping

from swiftfl.schedule import Broadcast
from swiftfl.vector import Weights

OLDEST = 4.0
"""Models that are older count as this many steps: a neighbour may have stopped."""


def span(w: Weights, ages: Mapping[int, float], broadcast: Broadcast = "before") -> float:
    """The s above; a model whose age is not known counts as 1 step old, which it is in lockstep."""
    older = 1.0 if broadcast == "after" else 0.0  # the same model, published a step later
    return 1.0 + sum(w[k] * (min(age + older, OLDEST) - 1.0) for k, age in ages.items())
