"""Lion (Chen et al., Symbolic Discovery of Optimization Algorithms, NeurIPS 2023, Algorithm 2).

u = sign(beta1 m + (1 - beta1) g);   move = -step_size (u + weight_decay x)
m <- beta2 m + (1 - beta2) g
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from swiftfl.rules.base import check_below_one, check_weight_decay, running_mean, update_rule
from swiftfl.settings import BelowOne, NotBelowZero
from swiftfl.vector import Memory, Vector


@dataclass(frozen=True, slots=True)
class LionRule:
    """Every number moves by the step size, in the direction that momentum and gradient agree upon."""

    beta1: float = 0.9
    beta2: float = 0.99
    weight_decay: float = 0.0
    elementwise: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_below_one(beta1=self.beta1, beta2=self.beta2)
        check_weight_decay(self.weight_decay)

    def init(self, x: Vector) -> Memory:
        return {"mean": np.zeros_like(x)}

    def update(self, g: Vector, x: Vector, step_size: float, memory: Memory) -> tuple[Vector, Memory]:
        move = running_mean(memory["mean"], self.beta1, g.copy())
        np.sign(move, out=move)
        if self.weight_decay:
            move += x * self.weight_decay
        move *= -step_size
        return move, {"mean": running_mean(memory["mean"], self.beta2, g.copy())}


@update_rule("lion")
def lion(*, beta1: BelowOne = 0.9, beta2: BelowOne = 0.99, weight_decay: NotBelowZero = 0.0) -> LionRule:
    """Lion: moves by the sign of the running mean of gradients; its steps are smaller than Adam's."""
    return LionRule(beta1, beta2, weight_decay)
