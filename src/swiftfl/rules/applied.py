"""The model after a move: what algorithms do with a gradient.

    after = applied(rule, half, slope, at, step_size, memory)      # half moved by the rule, buffers following

is `rule.update` and `vector.advance`; for large vectors the same bits in one pass over memory. A rule that
says `elementwise` (each number of the move depends on the same number of its arguments, and on memory of
other sizes) is asked for one block after the other, unless it has a pass of its own (`moved`). A rule may
also have one for small vectors (`moved_small`), which gives None where it cannot be used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from swiftfl import kernels
from swiftfl.recycled import LARGE, is_large, like
from swiftfl.rules.base import UpdateRule, update_in_blocks, updated
from swiftfl.rules.clipped import Clipped
from swiftfl.rules.remembering import Remembering
from swiftfl.sample import Slope
from swiftfl.vector import Memory, Vector, advance, finite, follow


class Applied(NamedTuple):
    """A model, what its rule remembers, and whether both were seen to be finite."""

    x: Vector
    memory: Memory
    finite: bool = False


@runtime_checkable
class OwnPass(Protocol):
    """A rule that can make the moved model of large vectors itself."""

    def moved(self, half: Vector, g: Vector, x: Vector, step_size: float, memory: Memory) -> Applied | None:
        """half + move, in one pass; None where that cannot be done."""


def applied(
    rule: UpdateRule, half: Vector, slope: Slope, at: Vector, step_size: float, memory: Memory
) -> Applied:
    """The model `half` moved by the rule's move for the gradient taken, with weight decay acting at `at`."""
    if half.size < LARGE or not is_large(half, slope.g, at):
        moved_small = getattr(rule, "moved_small", None)
        if moved_small is not None and slope.statistics is None:
            found: Applied | None = moved_small(half, slope.g, at, step_size, memory)
            if found is not None:
                return found
        move, after = updated(rule, slope.g, at, step_size, memory)
        return Applied(advance(half, move, slope.statistics), after)
    x, after, fine = _moved(rule, half, slope.g, at, step_size, memory)
    if slope.statistics is not None:
        follow(x, half, slope.statistics)
        fine = fine and finite(x[-slope.statistics.values.size :])
    return Applied(x, after, fine)


def _moved(rule: UpdateRule, half: Vector, g: Vector, x: Vector, step_size: float, memory: Memory) -> Applied:
    if isinstance(rule, Remembering):
        found = _moved(rule.rule, half, g, x, step_size, memory)
        return Applied(found.x, {**memory, **found.memory})  # what the algorithm remembers was not looked at
    if isinstance(rule, Clipped):
        return _moved(rule.rule, half, rule.clipped(g), x, step_size, memory)
    if isinstance(rule, OwnPass):
        own = rule.moved(half, g, x, step_size, memory)
        if own is not None:
            return own
    if getattr(rule, "elementwise", False):
        return _in_blocks(rule, half, g, x, step_size, memory)
    move, after = updated(rule, g, x, step_size, memory)
    return Applied(advance(half, move), after)


def _in_blocks(
    rule: UpdateRule, half: Vector, g: Vector, x: Vector, step_size: float, memory: Memory
) -> Applied:
    """Block after block, each of which stays in the cache until all is done with it."""
    kernels.same_shapes(half, g)
    out, fine = like(half), True

    def take(part: slice, move: Vector, remembered: Sequence[Vector]) -> None:
        nonlocal fine
        total = np.add(half[part], move, out=out[part])
        fine = fine and kernels.finite(total) and all(map(kernels.finite, remembered))

    after = update_in_blocks(rule, g, x, step_size, memory, take)
    others = (array for array in after.values() if array.shape != half.shape)
    return Applied(out, after, fine and all(map(finite, others)))
