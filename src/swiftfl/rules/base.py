"""What an update rule is, and rules by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeAlias, TypeVar

from swiftfl.errors import UserError, kind_of
from swiftfl.kernels import blocks, same_shapes
from swiftfl.recycled import is_large, vector
from swiftfl.registry import Registry, absent
from swiftfl.vector import Memory, Vector

Moments: TypeAlias = Literal["kept", "reset"]
"""What becomes of a rule's memory when models are averaged (`swiftfl.moments`)."""


class UpdateRule(Protocol):
    """A rule is pure: it writes into none of its arguments."""

    def init(self, x: Vector) -> Memory:
        """What the rule remembers before its first update."""

    def update(self, g: Vector, x: Vector, step_size: float, memory: Memory) -> tuple[Vector, Memory]:
        """The move of gradient `g` taken at model `x`, and the memory to keep: names and shapes of `init`."""


TakeBlock: TypeAlias = Callable[[slice, Vector, Sequence[Vector]], None]
"""Takes the move of one block, and what the rule remembers of it."""


def updated(
    rule: UpdateRule, g: Vector, x: Vector, step_size: float, memory: Memory
) -> tuple[Vector, Memory]:
    """`rule.update`; of large vectors in blocks, where the rule says that it is `elementwise`."""
    if not (is_large(g, x) and getattr(rule, "elementwise", False)):
        return _asked(rule, g, x, step_size, memory)
    moves: list[Vector] = []

    def take(part: slice, move: Vector, remembered: Sequence[Vector]) -> None:
        if not moves:
            moves.append(vector(g.size, move.dtype))
        moves[0][part] = move

    after = update_in_blocks(rule, g, x, step_size, memory, take)
    return moves[0], after


def update_in_blocks(
    rule: UpdateRule, g: Vector, x: Vector, step_size: float, memory: Memory, take: TakeBlock
) -> Memory:
    """What the rule remembers after an update that it is asked for block by block, each handed to `take`.

    A block stays in the cache until all is done with it, and what is made of it on the way is no larger.
    """
    same_shapes(g, x)
    after = dict(memory)
    for part in blocks(g.size):
        before = {name: old[part] if old.shape == g.shape else old for name, old in memory.items()}
        move, new = _asked(rule, g[part], x[part], step_size, before)
        whole = {name: array for name, array in new.items() if memory[name].shape == g.shape}
        take(part, move, [array for name, array in whole.items() if array is not before[name]])
        for name, array in new.items():
            if name not in whole:
                after[name] = array
            elif array is not before[name] and after[name] is memory[name]:
                after[name] = vector(g.size, array.dtype)
                after[name][: part.start] = memory[name][: part.start]  # which the rule has left as it was
            if name in whole and after[name] is not memory[name]:
                after[name][part] = array
    return after


def _asked(rule: UpdateRule, g: Vector, x: Vector, step_size: float, memory: Memory) -> tuple[Vector, Memory]:
    """`rule.update`; that of a rule of the user's own may not return what it should."""
    found: object = rule.update(g, x, step_size, memory)
    if not (isinstance(found, tuple) and len(found) == 2):
        raise UserError(
            f"{type(rule).__name__}.update must return the move and the memory to keep, not {kind_of(found)}"
        )
    return found


MakeRule = TypeVar("MakeRule", bound=Callable[..., UpdateRule])
RULES: Registry[Callable[..., UpdateRule]] = Registry("update rule", stand_in=absent)
"""Rules by name: functions whose keyword-only parameters are the options of a configuration."""


def update_rule(name: str) -> Callable[[MakeRule], MakeRule]:
    """Register a function that makes a rule."""

    def register(make: MakeRule) -> MakeRule:
        RULES.register(name, make)
        return make

    return register


def check_below_one(**rates: float) -> None:
    for name, value in rates.items():
        if not 0.0 <= value < 1.0:
            raise UserError(f"{name} must be in [0, 1), not {value}")


def check_weight_decay(value: float) -> None:
    if not (math.isfinite(value) and value >= 0.0):
        raise UserError(f"weight decay must be finite and not negative, not {value}")


def check_epsilon(value: float) -> None:
    if not (math.isfinite(value) and value > 0.0):
        raise UserError(f"epsilon must be finite and above 0, not {value}")


def decayed(g: Vector, x: Vector, weight_decay: float) -> Vector:
    """g + weight_decay x: the gradient with that of an L2 penalty; `g` itself where there is none."""
    if not weight_decay:
        return g
    out = x * weight_decay
    out += g
    return out


def running_mean(old: Vector, rate: float, new: Vector) -> Vector:
    """rate old + (1 - rate) new; `new` is used up: what it holds afterwards means nothing."""
    out = old * rate
    new *= 1.0 - rate
    out += new
    return out
