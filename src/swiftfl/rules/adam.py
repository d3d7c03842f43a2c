"""Adam (Kingma and Ba, ICLR 2015) and AdamW (Loshchilov and Hutter, ICLR 2019), as torch.optim has them.

    m <- beta1 m + (1 - beta1) d;   v <- beta2 v + (1 - beta2) d^2
    move = -step_size m^ / (sqrt(v^) + epsilon),   m^ = m / (1 - beta1^t),   v^ = v / (1 - beta2^t)

Adam's weight decay is the gradient of an L2 penalty: d = g + weight_decay x. AdamW's acts beside the moments:
d = g, and move = ... - step_size weight_decay x.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from swiftfl import kernels
from swiftfl.recycled import like
from swiftfl.rules.applied import Applied
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
class AdamRule:
    """Two moments and the number of steps are remembered; `decoupled` makes it AdamW."""

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    decoupled: bool = False
    elementwise: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_below_one(beta1=self.beta1, beta2=self.beta2)
        check_epsilon(self.epsilon)
        check_weight_decay(self.weight_decay)

    def init(self, x: Vector) -> Memory:
        return {"mean": np.zeros_like(x), "square": np.zeros_like(x), "steps": np.zeros(1)}

    def update(self, g: Vector, x: Vector, step_size: float, memory: Memory) -> tuple[Vector, Memory]:
        d = g if self.decoupled else decayed(g, x, self.weight_decay)
        steps = memory["steps"] + 1
        t = float(steps[0])
        move = d.copy()  # until the last lines, space for what is in between
        mean = running_mean(memory["mean"], self.beta1, move)
        np.multiply(d, d, out=move)
        square = running_mean(memory["square"], self.beta2, move)
        np.sqrt(square, out=move)
        move *= 1.0 / math.sqrt(1.0 - self.beta2**t)
        move += self.epsilon
        np.divide(mean, move, out=move)
        move *= -step_size / (1.0 - self.beta1**t)
        if self.decoupled and self.weight_decay:
            move -= x * (step_size * self.weight_decay)
        return move, {"mean": mean, "square": square, "steps": steps}

    def moved(self, half: Vector, g: Vector, x: Vector, step_size: float, memory: Memory) -> Applied | None:
        """`update` and the move in one pass, where there is a kernel for it."""
        steps = memory["steps"] + 1
        t = float(steps[0])
        out, mean, square = like(half), like(half), like(half)
        rates = (self.beta1, 1.0 - self.beta1, self.beta2, 1.0 - self.beta2)
        corrections = (1.0 / math.sqrt(1.0 - self.beta2**t), self.epsilon, -step_size / (1.0 - self.beta1**t))
        decay = (self.weight_decay, step_size * self.weight_decay)
        scalars = (*rates, *corrections, *decay)
        moments = (memory["mean"], memory["square"])
        fine = kernels.adam((out, mean, square), half, g, x, moments, scalars, self.decoupled)
        if fine is None:
            return None
        return Applied(out, {"mean": mean, "square": square, "steps": steps}, fine)


@update_rule("adam")
def adam(
    *,
    beta1: BelowOne = 0.9,
    beta2: BelowOne = 0.999,
    epsilon: Positive = 1e-8,
    weight_decay: NotBelowZero = 0.0,
) -> AdamRule:
    """Adam: moves by the running mean of gradients over the root of that of their squares."""
    return AdamRule(beta1, beta2, epsilon, weight_decay)


@update_rule("adamw")
def adamw(
    *,
    beta1: BelowOne = 0.9,
    beta2: BelowOne = 0.999,
    epsilon: Positive = 1e-8,
    weight_decay: NotBelowZero = 0.01,
) -> AdamRule:
    """Adam whose weight decay acts on the model itself, beside the moments."""
    return AdamRule(beta1, beta2, epsilon, weight_decay, decoupled=True)
