"""Stochastic gradient push: push-sum over a directed graph (Assran et al., ICML 2019).

Each client holds a mass x_i and a weight w_i, at first 1; its model is z_i = x_i / w_i. A step:

    x_i <- x_i - step_size g_i(z_i)
    (x_i, w_i) <- sum_{j -> i} p_j (x_j, w_j) + p_i (x_i, w_i),    p_j = 1 / (1 + out-degree of j)

A client knows whom it sends to, and need not know who sends to it: the columns of the matrix add up to one,
its rows need not, and the weights make up for that. `direction` says whether links are used both ways or
one way (`graph/directed.py`).

* `synchronous` (SGP): a client waits for the messages of the same round from all who send to it.
* `overlapped` (OSGP): it adds whatever has arrived and never waits.

Messages supersede each other in a mailbox, and may be lost; push-sum must lose no mass. So a client
publishes the *sum* of all that it has ever sent to one receiver (the same for all of them), and a receiver
takes the difference to the sum that it has seen last. Whatever was superseded or lost is in the next one.
Sums and masses are kept in double precision, also of single-precision models (as two numbers each), so that
differences of large sums stay exact.

Deviations: a client sends to each out-neighbour in every step (the paper's runs send to one at a time, in
turn). The overlapped form never blocks (the paper's does after tau steps without a message). A client whose
weight has fallen below `least` keeps its mass in that step: otherwise one whose receivers are slow, or have
finished, would give away all of it, and step_size / w_i, by which its model moves, would grow without
bound. Momentum and weight decay act on gradients, as in the update rule. What would go to a neighbour that
is known to be lost, or in rounds has finished, stays with the sender; one to whom messages go one way only
is not known to be.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from swiftfl.algorithms.registry import Context, algorithm
from swiftfl.client import Client, State
from swiftfl.graph.directed import Directed, Direction, directed
from swiftfl.rules import Remembering, SgdRule, UpdateRule, updated
from swiftfl.sample import Slope
from swiftfl.schedule import PushForm
from swiftfl.vector import Memory, Vector, advance, finite, narrow, wide
from swiftfl.verbs import Exchange, Fetch, Gradient, Inbox, Publish, Verb, WaitFree


@dataclass(frozen=True)
class PushSum:
    """What both forms share: the masses, as (x, w) in one vector, and whom a client sends to."""

    graph: Directed
    base: UpdateRule = SgdRule()
    least: float = 0.5
    name: str = "sgp"
    fixed_network: ClassVar[bool] = True

    def first_message(self, x: Vector) -> Vector:
        """What a mailbox holds before anything was sent."""
        return narrow(np.zeros(x.size + 1), x.dtype)

    @cached_property
    def rule(self) -> Remembering:
        return Remembering(self.base, self._first)

    def _first(self, x: Vector) -> Memory:
        return {"mass": narrow(np.append(x, 1.0), x.dtype)}

    def moved(self, me: Client, s: State, slope: Slope) -> tuple[Vector, Memory]:
        """The mass after the gradient's step, and the memory of the rule."""
        move, memory = updated(self.rule, slope.g, s.x, me.step_size(s.c), s.memory)
        mass = wide(s.memory["mass"], s.x)
        mass[:-1] += advance(s.x, move, slope.statistics) - s.x
        return mass, memory

    def share(self, me: Client, mass: Vector) -> Vector:
        """What each out-neighbour gets of a mass."""
        if mass[-1] < self.least:
            return np.zeros_like(mass)
        return mass / (1 + len(self.graph.out[me.index]))

    def takers(self, me: Client, inbox: Inbox) -> int:
        """How many out-neighbours take a share: all but those who also send to this client, and are gone."""
        into = self.graph.into[me.index]
        return sum(k in inbox or k not in into for k in self.graph.out[me.index])

    @property
    def warning_of_a_loss(self) -> str | None:
        """What users are told when a live client is lost."""
        if self.graph.out == self.graph.into:
            return None
        return (
            "what others send to it one way is lost, and in the end nobody sends: stop the run and resume it"
        )

    def resumed(self, s: State) -> State:
        """Live clients are saved at different times, or were lost: all begin anew, from their models."""
        return State(s.x, s.c, {**s.memory, **self._first(s.x)})

    def after(self, s: State, mass: Vector, memory: Memory) -> State:
        model = (mass[:-1] / mass[-1]).astype(s.x.dtype, copy=False)
        return State(model, s.c + 1, {**memory, "mass": narrow(mass, s.x.dtype)})


@dataclass(frozen=True)
class Sgp(PushSum):
    """SGP in rounds: a client waits for those who send to it."""

    in_rounds: ClassVar[bool] = True

    def step(self, me: Client, s: State) -> Generator[Verb, object, State]:
        slope = yield from Gradient(s.x, me.batch(s.c))
        mass, memory = self.moved(me, s, slope)
        share, out = self.share(me, mass), self.graph.out[me.index]
        message = narrow(share, s.x.dtype)
        inbox = yield from Exchange(message, self.graph.into[me.index], round=s.c, to=out)
        mass = mass - self.takers(me, inbox) * wide(message, s.x)
        for k in self.graph.into[me.index]:
            if k in inbox:
                mass += wide(inbox[k], s.x)
        return self.after(s, mass, memory)


@dataclass(frozen=True)
class OverlappedSgp(PushSum):
    """SGP that never waits, by sums of all that was ever sent."""

    in_rounds: ClassVar[bool] = False

    def _first(self, x: Vector) -> Memory:
        nothing = self.first_message(x)
        seen = np.zeros(self.graph.most_into * nothing.size, dtype=x.dtype)
        return {"mass": narrow(np.append(x, 1.0), x.dtype), "sent": nothing, "seen": seen}

    def step(self, me: Client, s: State) -> Generator[WaitFree, object, State]:
        slope = yield from Gradient(s.x, me.batch(s.c))
        mass, memory = self.moved(me, s, slope)
        if not finite(mass):
            return self.after(s, mass, memory)  # nothing is sent of a step that will be left out
        out, into = self.graph.out[me.index], self.graph.into[me.index]
        before = wide(s.memory["sent"], s.x)
        sent = narrow(before + self.share(me, mass), s.x.dtype)
        yield from Publish(sent, out, version=s.c)
        inbox = yield from Fetch(into)
        mass = mass - self.takers(me, inbox) * (wide(sent, s.x) - before)  # exactly what they will find
        seen = s.memory["seen"].copy()
        for position, k in enumerate(into):
            if k in inbox:
                old = seen[position * sent.size : (position + 1) * sent.size]
                mass += wide(inbox[k], s.x) - wide(old, s.x)
                old[:] = inbox[k]
        return self.after(s, mass, {**memory, "sent": sent, "seen": seen})


@algorithm("sgp", weighted=False, edges="first", influenced=False)
def sgp(
    context: Context, *, form: PushForm = "overlapped", direction: Direction = "both"
) -> Sgp | OverlappedSgp:
    """Push-sum over a directed graph; overlapped it never waits, synchronous it waits for who sends to it."""
    graph = directed(context.topology, direction)
    return OverlappedSgp(graph, context.rule) if form == "overlapped" else Sgp(graph, context.rule)
