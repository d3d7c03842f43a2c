"""A2CiD2: asynchronous gossip with a continuous momentum between events (Nabli et al., NeurIPS 2023).

Each client has its model x and a second one, x~, which relax towards each other while time goes by:

    dx = eta (x~ - x) dt, dx~ = eta (x - x~) dt:
                             x <- x + a (x~ - x),        x~ <- x~ + a (x - x~),   a = (1 - exp(-2 eta dt)) / 2
    a gradient:              x <- x - step_size g(x),    x~ <- x~ - step_size g(x)
    an averaging with j:     x <- x + 1/2 (x_j - x),     x~ <- x~ + alpha (x_j - x)     (and the same for j)

eta = 1 / (2 sqrt(chi1 chi2)) and alpha = 1/2 sqrt(chi1 / chi2) follow from the graph and the rate of
averagings (`graph/acceleration.py`; checked against the authors' code). Only x is sent. With eta = 0 it is
`gossip_async`, whose `rate` counts the averagings that a client begins, half of those it takes part in.

A client's unit of time is one of its own steps, as in the authors' code, which divides times by the mean
time of a gradient. In a step it begins Poisson(rate / 2) averagings, at uniform times; others begin as many
with it.

Deviations: x~ is the client's own business, and x is a cell that others average into, so that what they did
to it is found at the client's next event: x~ then moves by 2 alpha times as much, which is the same, and
both relax over the whole time between two own events, which is not quite (others' averagings count as if
they had come at its end). The gradient is taken at the beginning of the step and applied at its end.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from swiftfl.algorithms.registry import Context, algorithm
from swiftfl.client import Client, State
from swiftfl.graph.acceleration import Acceleration, acceleration
from swiftfl.rules import Remembering, SgdRule, UpdateRule, updated
from swiftfl.settings import Rate
from swiftfl.streams import stream
from swiftfl.vector import Memory, Vector, advance
from swiftfl.verbs import Add, AverageWith, Gradient, Load, Verb


def _first(x: Vector) -> Memory:
    return {"tilde": x, "left": x}


@dataclass(frozen=True)
class A2cid2:
    """Asynchronous gossip SGD, accelerated; `pace` None is without acceleration."""

    pace: Acceleration | None
    rate: float = 1.0
    base: UpdateRule = SgdRule()
    seed: int = 0
    name: str = "a2cid2"
    in_rounds: ClassVar[bool] = False
    in_pairs: ClassVar[bool] = True

    @cached_property
    def rule(self) -> Remembering:
        return Remembering(self.base, _first)

    def step(self, me: Client, s: State) -> Generator[Verb, object, State]:
        alpha = 0.5 if self.pace is None else self.pace.alpha
        at = yield from Load()
        slope = yield from Gradient(at, me.batch(s.c))
        x = yield from Load()
        tilde = s.memory["tilde"] + 2 * alpha * (x - s.memory["left"])  # what others have done meanwhile
        now = 0.0
        for when, partner in self.meetings(me, s.c):
            pull = self.relaxed(when - now) * (tilde - x)
            cell = yield from Add(pull)
            tilde = tilde - pull + 2 * alpha * (cell - x - pull)
            x = yield from AverageWith(partner)
            tilde = tilde + 2 * alpha * (x - cell)
            now = when
        pull = self.relaxed(1.0 - now) * (tilde - x)
        move, memory = updated(self.rule, slope.g, at, me.step_size(s.c), s.memory)
        step = advance(x + pull, move, slope.statistics) - x
        cell = yield from Add(step)
        tilde = tilde + step - 2 * pull + 2 * alpha * (cell - x - step)
        return State(cell, s.c + 1, {**memory, "tilde": tilde, "left": cell})

    def relaxed(self, seconds: float) -> float:
        """How much of their distance x and x~ each cover in this time."""
        return 0.0 if self.pace is None else -0.5 * math.expm1(-2.0 * self.pace.eta * seconds)

    def meetings(self, me: Client, c: int) -> list[tuple[float, int]]:
        """When within step c, and with whom, the client averages."""
        if not me.neighbours:
            return []
        draw = stream(self.seed, "meetings", me.index, c)
        count = int(draw.poisson(0.5 * self.rate))
        times, partners = np.sort(draw.random(count)), draw.integers(len(me.neighbours), size=count)
        return [(float(t), me.neighbours[k]) for t, k in zip(times, partners, strict=True)]


@algorithm("a2cid2", weighted=False, edges="first", influenced=False)
def a2cid2(context: Context, *, rate: Rate = 1.0) -> A2cid2:
    """Gossip at random times with a momentum in between, `rate` averagings per step; waits for locks only."""
    pace = acceleration(context.topology, rate) if context.topology.m else None
    return A2cid2(pace, rate, context.rule, context.seed)
