"""An update rule together with what an algorithm itself has to remember between steps.

A client's memory is named arrays, which saves, checkpoints and replay treat alike; the rule of its algorithm
says which there are. An algorithm with memory of its own (a model of its own beside the cell, what it has
received so far) therefore wraps its rule:

    rule = Remembering(rule, lambda x: {"local": x})

The algorithm replaces its own arrays in the state that a step returns; `update` leaves them alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from swiftfl.rules.base import UpdateRule, updated
from swiftfl.vector import Memory, Vector


@dataclass(frozen=True, slots=True)
class Remembering:
    """`rule`, and further arrays that begin as `first(x)` and that the rule never looks at."""

    rule: UpdateRule
    first: Callable[[Vector], Memory]

    def init(self, x: Vector) -> Memory:
        return {**self.rule.init(x), **self.first(x)}

    def update(self, g: Vector, x: Vector, step_size: float, memory: Memory) -> tuple[Vector, Memory]:
        move, after = updated(self.rule, g, x, step_size, memory)
        return move, {**memory, **after}

    def reset(self, x: Vector, memory: Memory) -> Memory:
        """The rule begins anew at x; the algorithm's own arrays stay."""
        return {**memory, **self.rule.init(x)}


def first_memory(rule: UpdateRule, x: Vector, memory: Memory) -> Memory:
    """The memory with which a rule begins anew at x, in the middle of a run."""
    return rule.reset(x, memory) if isinstance(rule, Remembering) else rule.init(x)
