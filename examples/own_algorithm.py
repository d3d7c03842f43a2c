"""Your own algorithm: lazy SWIFT, which averages only when it has drifted far from its neighbours.

Run it with `python examples/own_algorithm.py`.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import swiftfl
from swiftfl.client import Client, State
from swiftfl.rules import SgdRule, UpdateRule
from swiftfl.vector import advance
from swiftfl.verbs import Fetch, Gradient, Mix, Publish, WaitFree


@dataclass(frozen=True)
class Lazy:
    """SWIFT that averages when some neighbour's model is further away than `far`."""

    far: float
    rule: UpdateRule = SgdRule(momentum=0.9)
    name: str = "lazy"
    in_rounds: ClassVar[bool] = False

    def step(self, me: Client, s: State) -> Generator[WaitFree, object, State]:
        yield from Publish(s.x, me.neighbours, version=s.c)
        slope = yield from Gradient(s.x, me.batch(s.c))
        inbox = yield from Fetch(me.neighbours)
        half = s.x
        if max((float(np.linalg.norm(x - s.x)) for x in inbox.values()), default=0.0) > self.far:
            half = yield from Mix(me.w, s.x, inbox)
        move, memory = self.rule.update(slope.g, s.x, me.step_size(s.c), s.memory)
        return State(advance(half, move, slope.statistics), s.c + 1, memory)


found = swiftfl.compare(
    {"SWIFT": "swift", "lazy 1": Lazy(1.0), "lazy 3": Lazy(3.0)}, "mlp", "digits", epochs=5
)
print(found.table())
