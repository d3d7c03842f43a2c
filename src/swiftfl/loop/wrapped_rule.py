"""A torch optimizer as an update rule: the move is what it does to the module's parameters.

Its memory (momentum, moments) stays in the torch optimizer, where `state_dict` finds it, so the rule itself
remembers nothing. The optimizer acts on the parameters that the module holds, which are those at which the
gradient was taken; so weight decay acts there, too. Where an algorithm wants it to act at another model
(`decay_at="average"`), that one is put into the module first.
"""

from __future__ import annotations

import numpy as np
import torch

from swiftfl import kernels
from swiftfl.errors import UserError
from swiftfl.loop.module_vector import ModuleVector
from swiftfl.recycled import like
from swiftfl.rules import Applied
from swiftfl.vector import Memory, Vector, finite


class WrappedRule:
    """`swiftfl.rules.UpdateRule` around a torch optimizer and the module that it moves."""

    def __init__(self, wrapped: torch.optim.Optimizer, module: ModuleVector) -> None:
        self._wrapped, self._module = wrapped, module
        self.at: Vector | None = None  # the model that is in the module
        self.g: Vector | None = None  # the gradient that is in it

    def init(self, x: Vector) -> Memory:
        return {}

    def update(self, g: Vector, x: Vector, step_size: float, memory: Memory) -> tuple[Vector, Memory]:
        """A gradient that is not finite leaves the optimizer's memory alone; the step is then left out."""
        if not self._stands_at(g, x):
            return np.full_like(x, np.nan), memory
        before = x if self._module.exact else self._module.read()
        self._wrapped.step()
        move: Vector = self._module.read()
        move -= before
        move[self._module.trainable :] = 0
        if step_size != 1.0:
            move *= step_size
        return move, memory

    def moved(self, half: Vector, g: Vector, x: Vector, step_size: float, memory: Memory) -> Applied | None:
        """`update` and the move in one pass, straight from the parameters, where these lie in host memory."""
        plan = self._module.plan
        if self._module.in_place() is None or not self._stands_at(g, x):
            return None
        self._wrapped.step()
        now = self._module.in_place()
        if now is None:
            raise UserError("the wrapped optimizer has moved the parameters to another device or type")
        out = like(half)
        fine = True
        for piece, after in zip(plan.parameters, now, strict=True):
            part = slice(piece.start, piece.stop)
            fine = kernels.shift(out[part], half[part], after, x[part], step_size) and fine
        np.add(half[plan.trainable :], 0, out=out[plan.trainable :])
        return Applied(out, memory, fine and finite(out[plan.trainable :]))

    def _stands_at(self, g: Vector, x: Vector) -> bool:
        """Whether the optimizer can make its step: the module then holds this gradient, at this model."""
        if not finite(g):
            return False
        if g is not self.g:  # the algorithm has made something else of it, such as a mean
            self._module.load_gradient(g)
        if x is not self.at:
            self._module.load(x)
        return True
