"""RMSprop (Tieleman and Hinton, lecture 6.5 of Coursera's Neural Networks, 2012), as torch.optim has it.

d = g + weight_decay x;   v <- alpha v + (1 - alpha) d^2;   u = d / (sqrt(v) + epsilon)
m <- momentum m + u;   move = -step_size m    (without momentum: move = -step_size u)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from swiftfl.rules.base import (
    check_below_one,
    check_epsilon,
    check_weight_decay,
    decayed,
    running_mean,
    update_rule,
)
from swiftfl.settings import BelowOne, NotBelowZero, Positive
from swiftfl.vector import Memory, Vector


@dataclass(frozen=True, slots=True)
class RmspropRule:
    """Gradients over the root of the running mean of their squares, with momentum and weight decay."""

    alpha: float = 0.99
    epsilon: float = 1e-8
    momentum: float = 0.0
    weight_decay: float = 0.0
    elementwise: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_below_one(alpha=self.alpha, momentum=self.momentum)
        check_epsilon(self.epsilon)
        check_weight_decay(self.weight_decay)

    def init(self, x: Vector) -> Memory:
        square = {"square": np.zeros_like(x)}
        return {**square, "momentum": np.zeros_like(x)} if self.momentum else square

    def update(self, g: Vector, x: Vector, step_size: float, memory: Memory) -> tuple[Vector, Memory]:
        d = decayed(g, x, self.weight_decay)
        move = d * d  # until the last lines, space for what is in between
        square = running_mean(memory["square"], self.alpha, move)
        np.sqrt(square, out=move)
        move += self.epsilon
        np.divide(d, move, out=move)
        if not self.momentum:
            move *= -step_size
            return move, {"square": square}
        m = memory["momentum"] * self.momentum
        m += move
        return np.multiply(m, -step_size, out=move), {"square": square, "momentum": m}


@update_rule("rmsprop")
def rmsprop(
    *,
    alpha: BelowOne = 0.99,
    epsilon: Positive = 1e-8,
    momentum: BelowOne = 0.0,
    weight_decay: NotBelowZero = 0.0,
) -> RmspropRule:
    """RMSprop: gradients over the root of the running mean of their squares."""
    return RmspropRule(alpha, epsilon, momentum, weight_decay)
