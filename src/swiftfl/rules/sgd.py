"""Stochastic gradient descent: torch.optim.SGD's formulas with dampening 0.

    d = g + weight_decay x;   m <- momentum m + d;   move = -step_size m
    (Nesterov: move = -step_size (d + momentum m))

Dampening is left out: torch's first step has none, so that the rule would have to remember its beginning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from swiftfl import kernels
from swiftfl.errors import UserError
from swiftfl.recycled import like
from swiftfl.rules.applied import Applied
from swiftfl.rules.base import check_below_one, check_weight_decay, decayed, update_rule
from swiftfl.settings import BelowOne, NotBelowZero
from swiftfl.small import calls
from swiftfl.vector import Memory, Vector


@dataclass(frozen=True, slots=True)
class SgdRule:
    """Stochastic gradient descent with momentum, weight decay and Nesterov's look-ahead."""

    momentum: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    elementwise: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_below_one(momentum=self.momentum)
        check_weight_decay(self.weight_decay)
        if self.nesterov and self.momentum == 0.0:
            raise UserError("Nesterov needs a momentum above 0")

    def init(self, x: Vector) -> Memory:
        return {"momentum": np.zeros_like(x)} if self.momentum else {}

    def update(self, g: Vector, x: Vector, step_size: float, memory: Memory) -> tuple[Vector, Memory]:
        d = decayed(g, x, self.weight_decay)
        if not self.momentum:
            return d * -step_size, memory
        m = memory["momentum"] * self.momentum
        m += d
        if not self.nesterov:
            return m * -step_size, {"momentum": m}
        move = m * self.momentum
        move += d
        move *= -step_size
        return move, {"momentum": m}

    def moved(self, half: Vector, g: Vector, x: Vector, step_size: float, memory: Memory) -> Applied | None:
        """`update` and the move in one pass, where there is a kernel for it."""
        out, m = like(half), memory["momentum"] if self.momentum else None
        after = None if m is None else like(m)
        fine = kernels.sgd(
            out, after, half, g, x, m, self.momentum, self.weight_decay, step_size, self.nesterov
        )
        if fine is None:
            return None
        return Applied(out, memory if after is None else {"momentum": after}, fine)

    def moved_small(
        self, half: Vector, g: Vector, x: Vector, step_size: float, memory: Memory
    ) -> Applied | None:
        """The same of small vectors."""
        m = memory["momentum"] if self.momentum else None
        found = calls.sgd(half, g, x, m, self.momentum, self.weight_decay, -step_size, self.nesterov)
        if found is None:
            return None
        after, m_after, fine = found
        return Applied(after, memory if m is None else {"momentum": m_after}, fine)


@update_rule("sgd")
def sgd(*, momentum: BelowOne = 0.9, weight_decay: NotBelowZero = 0.0, nesterov: bool = False) -> SgdRule:
    """SGD with momentum, weight decay and Nesterov's look-ahead."""
    return SgdRule(momentum, weight_decay, nesterov)
