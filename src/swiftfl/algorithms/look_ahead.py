"""SWIFT that publishes where its momentum leads (`--look-ahead`; docs/step-size.md).

What of the move is known before the gradient is published with the model. With momentum mu m:

    z = x - step_size mu m;  publish z;  g at x;  x <- Mix(z) - step_size g

In matrix form it is SWIFT's X^{t+1} = X^t W_{i_t} - step_size G in Z, with Nesterov's move; coefficients and
bytes are SWIFT's. It is neither printed in the paper nor in the authors' code.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from swiftfl.algorithms.span import span
from swiftfl.client import Client, State
from swiftfl.errors import UserError
from swiftfl.rules import SgdRule, UpdateRule, updated
from swiftfl.schedule import CommunicationSet, every
from swiftfl.vector import Vector, advance
from swiftfl.verbs import Fetch, Gradient, Mix, Publish, WaitFree


@dataclass(frozen=True)
class SwiftLookAhead:
    """SWIFT with look-ahead under a communication set; its rule has to have momentum."""

    communication_set: CommunicationSet = every(0)
    rule: UpdateRule = SgdRule(0.9)
    name: str = "swift"
    corrected: bool = False
    in_rounds: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.rule.init(np.zeros(1)):
            raise UserError("look_ahead has no effect: the update rule has no momentum")

    def step(self, me: Client, s: State) -> Generator[WaitFree, object, State]:
        step_size = me.step_size(s.c)
        ahead = self._known_move(s, step_size)
        z: Vector = s.x + ahead
        yield from Publish(z, me.neighbours, version=s.c)
        slope = yield from Gradient(s.x, me.batch(s.c))
        if s.c in self.communication_set:
            inbox = yield from Fetch(me.neighbours)
            half = yield from Mix(me.w, z, inbox)
            if self.corrected:
                step_size *= span(me.w, inbox.ages)
        else:
            half = z
        move, memory = updated(self.rule, slope.g, s.x, step_size, s.memory)
        return State(advance(half, move - ahead, slope.statistics), s.c + 1, memory)

    def _known_move(self, s: State, step_size: float) -> Vector:
        """The part of the move that does not need the gradient: of momentum, -step_size mu m."""
        return updated(self.rule, np.zeros_like(s.x), s.x, step_size, s.memory)[0]
