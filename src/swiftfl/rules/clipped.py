"""Gradient clipping by norm, in the place of a rule: torch.nn.utils.clip_grad_norm_, before the update.

g <- g min(1, clip / (|g| + 1e-6))
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from swiftfl.errors import UserError
from swiftfl.recycled import like
from swiftfl.rules.base import UpdateRule, updated
from swiftfl.vector import Memory, Vector

_TINY = 1e-6  # torch's


@dataclass(frozen=True, slots=True)
class Clipped:
    """A rule that is given gradients whose norm is at most `clip`. Running buffers have none, and count 0."""

    rule: UpdateRule
    clip: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.clip) and self.clip > 0.0):
            raise UserError(f"clip must be finite and above 0, not {self.clip}")

    def init(self, x: Vector) -> Memory:
        return self.rule.init(x)

    def update(self, g: Vector, x: Vector, step_size: float, memory: Memory) -> tuple[Vector, Memory]:
        return updated(self.rule, self.clipped(g), x, step_size, memory)

    def clipped(self, g: Vector) -> Vector:
        """The gradient that the rule is given: g itself where it is short enough."""
        factor = self.clip / (norm(g) + _TINY)
        # "not less" is also so of a norm that is no number: the step is then left out, like any of the kind.
        return g if factor >= 1.0 else np.multiply(g, factor, out=like(g))


def norm(g: Vector) -> float:
    """The Euclidean norm; in double precision where squares of single precision overflow."""
    with np.errstate(over="ignore"):
        found = float(np.linalg.norm(g))
    return found if math.isfinite(found) else float(np.linalg.norm(g.astype(np.float64)))
