"""Update rules: from a gradient to a move. SGD with momentum, weight decay and Nesterov.

    d = g + weight_decay x;   m <- momentum m + d;   move = -step_size m
    (Nesterov: move = -step_size (d + momentum m))

These are torch.optim.SGD's formulas with dampening 0, so a single client trains as plain PyTorch
does (a test holds the two side by side).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from swiftfl.errors import UserError
from swiftfl.vector import Vector


@dataclass(frozen=True, slots=True)
class SGD:
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

    def update(
        self, g: Vector, x: Vector, step_size: float, memory: Vector | None
    ) -> tuple[Vector, Vector | None]:
        """The move of gradient `g` taken at model `x`, and the memory to keep."""
        d = g + x * self.weight_decay if self.weight_decay else g
        if not self.momentum:
            return d * -step_size, None
        if memory is None:
            m = d
        else:
            m = memory * self.momentum
            m += d
        look_ahead = d + self.momentum * m if self.nesterov else m
        return look_ahead * -step_size, m
