"""SwarmSGD: local steps, then one averaging with a random neighbour (Nadiradze et al., NeurIPS 2021).

X_i is client i's cell, x^_i the cell after its own last meeting, h_i = -step_size times the gradients of its
H local steps since, which it takes from x^_i on. When it has taken them, it picks a neighbour j:

    X_i, X_j <- (X_i + X_j) / 2;    X_i <- X_i + h_i;    x^_i <- X_i

j's own pending h_j is not touched: j adds it at its own next meeting (the paper's non-blocking form). In
matrix form X_{k+1} = X_k W_k + h_i e_i', with W_k averaging one pair, and h_i from H gradients at models
that began at x^_i. With H = 1 it is AD-PSGD.

Deviations: no quantised models (the paper's scheme decodes against the receiver's own model, and fails once
models are further apart than its range). H is a constant, not drawn from a geometric distribution. A
client's model, as others see it and as it is evaluated, is X_i: local steps since its last meeting are not
in it yet, and at the end of a run at most H - 1 of them never are.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

from swiftfl.algorithms.registry import Context, algorithm
from swiftfl.client import Client, State
from swiftfl.rules import Remembering, SgdRule, UpdateRule, applied
from swiftfl.settings import Count
from swiftfl.streams import stream
from swiftfl.vector import Memory, Vector
from swiftfl.verbs import Add, AverageWith, Gradient, Verb


def _first(x: Vector) -> Memory:
    return {"met": x, "local": x}


@dataclass(frozen=True)
class Swarm:
    """`local_steps` gradients, then a meeting with a random neighbour, which `seed` draws."""

    local_steps: int = 3
    base: UpdateRule = SgdRule()
    seed: int = 0
    name: str = "swarm"
    in_rounds: ClassVar[bool] = False
    in_pairs: ClassVar[bool] = True

    @property
    def rule(self) -> Remembering:
        return Remembering(self.base, _first)

    def step(self, me: Client, s: State) -> Generator[Verb, object, State]:
        x = s.memory["local"]
        slope = yield from Gradient(x, me.batch(s.c))
        local, memory, _ = applied(self.rule, x, slope, x, me.step_size(s.c), s.memory)
        if s.c % self.local_steps:
            return State(s.x, s.c + 1, {**memory, "local": local})
        if me.neighbours:
            yield from AverageWith(self.partner(me, s.c))
        cell = yield from Add(local - s.memory["met"])
        return State(cell, s.c + 1, {**memory, "met": cell, "local": cell})

    def partner(self, me: Client, c: int) -> int:
        return me.neighbours[stream(self.seed, "partner", me.index, c).integers(len(me.neighbours))]


@algorithm("swarm", weighted=False, influenced=False)
def swarm(context: Context, *, local_steps: Count = 3) -> Swarm:
    """`local_steps` gradients, then averages with one random neighbour; waits for locks only."""
    return Swarm(local_steps, context.rule, context.seed)
