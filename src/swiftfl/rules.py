"""Update rules: from a gradient to a move. What a rule remembers are named arrays, any number of them.

    memory_0 = init(x);   move, memory <- update(g, x, step_size, memory);   the model moves by `move`

A rule is a registered function that makes an object with these two methods; engines save, send and
replay whatever arrays its memory holds. `SGD` is torch.optim.SGD's formulas with dampening 0 (a test holds
the two side by side):

    d = g + weight_decay x;   m <- momentum m + d;   move = -step_size m
    (Nesterov: move = -step_size (d + momentum m))
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from swiftfl.errors import UserError
from swiftfl.registry import Registry
from swiftfl.settings import BelowOne, NotBelowZero
from swiftfl.vector import Memory, Vector


class UpdateRule(Protocol):
    """A rule is pure: it writes into none of its arguments."""

    def init(self, x: Vector) -> Memory:
        """What the rule remembers before its first update."""

    def update(self, g: Vector, x: Vector, step_size: float, memory: Memory) -> tuple[Vector, Memory]:
        """The move of gradient `g` taken at model `x`, and the memory to keep: names and shapes of `init`."""


MakeRule = TypeVar("MakeRule", bound=Callable[..., UpdateRule])
RULES: Registry[Callable[..., UpdateRule]] = Registry("update rule")
"""Rules by name: functions whose keyword-only parameters are the options of a configuration."""


def update_rule(name: str) -> Callable[[MakeRule], MakeRule]:
    """Register a function that makes a rule."""

    def register(make: MakeRule) -> MakeRule:
        RULES.register(name, make)
        return make

    return register


@dataclass(frozen=True, slots=True)
class SGD:
    """Stochastic gradient descent with momentum, weight decay and Nesterov's look-ahead."""

    momentum: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.momentum < 1.0:
            raise UserError(f"momentum must be in [0, 1), not {self.momentum}")
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0.0):
            raise UserError(f"weight decay must be finite and not negative, not {self.weight_decay}")
        if self.nesterov and self.momentum == 0.0:
            raise UserError("Nesterov needs a momentum above 0")

    def init(self, x: Vector) -> Memory:
        return {"momentum": np.zeros_like(x)} if self.momentum else {}

    def update(self, g: Vector, x: Vector, step_size: float, memory: Memory) -> tuple[Vector, Memory]:
        d = g + x * self.weight_decay if self.weight_decay else g
        if not self.momentum:
            return d * -step_size, memory
        m = memory["momentum"] * self.momentum
        m += d
        look_ahead = d + self.momentum * m if self.nesterov else m
        return look_ahead * -step_size, {"momentum": m}


@update_rule("sgd")
def sgd(*, momentum: BelowOne = 0.9, weight_decay: NotBelowZero = 0.0, nesterov: bool = False) -> SGD:
    """SGD with momentum, weight decay and Nesterov's look-ahead."""
    return SGD(momentum, weight_decay, nesterov)
