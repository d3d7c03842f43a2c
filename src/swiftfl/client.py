"""What one client can see of the world during one step, and what it remembers between steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from swiftfl.sample import Batch
from swiftfl.vector import Memory, Vector, Weights


@dataclass(slots=True)
class State:
    """What a client carries from step to step: model, counter (from 1), named arrays of the update rule.

    `finite` says that model and memory were seen to be: engines then need not look again.
    """

    x: Vector
    c: int = 1
    memory: Memory = field(default_factory=dict)
    finite: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Client:
    """A client during one step. `neighbours` and `w` belong together and are replaced together."""

    index: int
    neighbours: tuple[int, ...]
    w: Weights
    influence: float
    batch: Callable[[int], Batch]
    step_size: Callable[[int], float]
