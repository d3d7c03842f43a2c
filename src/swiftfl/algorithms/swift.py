"""SWIFT: wait-free decentralized learning (Bornstein et al., ICLR 2023, Algorithm 1).

In matrix form, with client i_t active at iteration t:

    X^{t+1} = X^t W_{i_t} - step_size G(x_{i_t}),    W_i = I + (w_i - e_i) e_i^T  if c_i in C_s, else I

Lines 3, 6 and 16 of Algorithm 1 (the loop, the active client, the others unchanged) are the
engine. Lines 2, 4 and 5 (CCS, renewed when the topology changes) are `me.w`, replaced between steps.

Deviations from the printed algorithm: line 12 averages with column i, w_{k,i} (the print has the
transpose, which is wrong for non-uniform influence); the experiments add momentum and weight decay, which
the print leaves out: here they act at x^t, where the gradient is taken; running buffers are averaged with
the parameters, unless they are to stay each client's own (`model.buffers`).

What the authors ran differs from what they printed in two ways. Their code broadcasts *after* the gradient
(`broadcast="after"`), so that the models which neighbours see are one gradient older; and its weight decay
acts at x^{t+1/2} (`decay_at="average"`), because the optimiser steps from the averaged model.

Two options are neither printed nor the authors' (docs/step-size.md): `look_ahead`, in a file of its own,
and `corrected`: a step is as long as the time that it spans (`algorithms/span.py`).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

from swiftfl.algorithms.look_ahead import SwiftLookAhead
from swiftfl.algorithms.registry import Context, algorithm
from swiftfl.algorithms.span import span
from swiftfl.client import Client, State
from swiftfl.errors import UserError
from swiftfl.rules import SgdRule, UpdateRule, applied
from swiftfl.schedule import Broadcast, CommunicationSet, DecayAt, every
from swiftfl.settings import NotNegative
from swiftfl.verbs import Fetch, Gradient, Mix, Publish, WaitFree


@dataclass(frozen=True)
class Swift:
    """SWIFT under a communication set; `Swift()` is C_0 with plain SGD."""

    communication_set: CommunicationSet = every(0)
    rule: UpdateRule = SgdRule()
    name: str = "swift"
    broadcast: Broadcast = "before"
    decay_at: DecayAt = "start"
    corrected: bool = False
    in_rounds: ClassVar[bool] = False

    def step(self, me: Client, s: State) -> Generator[WaitFree, object, State]:
        step_size = me.step_size(s.c)
        if self.broadcast == "before":
            yield from Publish(s.x, me.neighbours, version=s.c)  # line 7
        batch = me.batch(s.c)  # line 8
        slope = yield from Gradient(s.x, batch)  # line 9
        if self.broadcast == "after":
            yield from Publish(s.x, me.neighbours, version=s.c)  # where the authors' code has line 7
        if s.c in self.communication_set:  # line 10
            inbox = yield from Fetch(me.neighbours)  # line 11
            half = yield from Mix(me.w, s.x, inbox)  # line 12
            if self.corrected:
                step_size *= span(me.w, inbox.ages, self.broadcast)
        else:
            half = s.x  # line 14
        at = half if self.decay_at == "average" else s.x
        after = applied(self.rule, half, slope, at, step_size, s.memory)  # line 15
        return State(after.x, s.c + 1, after.memory, after.finite)  # line 17


@algorithm("swift", weights="ccs", corrects_steps=True)
def swift(
    context: Context,
    *,
    communication_set: NotNegative = 0,
    broadcast: Broadcast = "before",
    decay_at: DecayAt = "start",
    look_ahead: bool = False,
) -> Swift | SwiftLookAhead:
    """Wait-free: averages with the newest models that have arrived; `communication_set` is the s of C_s."""
    averages_at, corrected = every(communication_set), context.corrected_steps
    if not look_ahead:
        return Swift(averages_at, context.rule, broadcast=broadcast, decay_at=decay_at, corrected=corrected)
    if (broadcast, decay_at) != ("before", "start"):
        raise UserError("look_ahead is an order of its own: leave out broadcast after and decay_at average")
    return SwiftLookAhead(averages_at, context.rule, corrected=corrected)
