"""D-SGD, PA-SGD and LD-SGD: one step under three communication sets.

    x_i <- sum_j w_{j,i} (x_j - step_size g_j)   if c in the communication set
    x_i <- x_i - step_size g_i                   otherwise

* D-SGD (Lian et al., NeurIPS 2017) averages after every step: `every(0)`.
* PA-SGD (Wang & Joshi, 2018) averages after I1 further local steps: `every(i1)`.
* LD-SGD (Li et al., 2019) alternates I1 local steps and I2 averaging ones: `alternating(i1, i2)`.

An averaging step waits for the neighbours' models of the same round.

Deviation: the paper's appendix writes W_{ij} for the weight that i gives j; with the symmetric
weights that these methods require (Metropolis here) the two agree.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from swiftfl.client import Client, State
from swiftfl.rules import SGD
from swiftfl.schedule import CommunicationSet, alternating, every
from swiftfl.vector import advance
from swiftfl.verbs import Exchange, Gradient, Mix, Verb


@dataclass(frozen=True)
class Synchronous:
    """Local SGD steps, with neighbourhood averaging at the counters of a communication set."""

    communication_set: CommunicationSet = every(0)
    rule: SGD = SGD()
    name: str = "dsgd"

    def step(self, me: Client, s: State) -> Generator[Verb, object, State]:
        slope = yield from Gradient(s.x, me.batch(s.c))
        move, memory = self.rule.update(slope.g, s.x, me.step_size(s.c), s.memory)
        x = advance(s.x, move, slope.statistics)
        if s.c in self.communication_set:
            inbox = yield from Exchange(x, me.neighbours, round=s.c)
            x = yield from Mix(me.w, x, inbox)
        return State(x, s.c + 1, memory)


def dsgd(rule: SGD = SGD()) -> Synchronous:
    return Synchronous(every(0), rule, "dsgd")


def pasgd(i1: int, rule: SGD = SGD()) -> Synchronous:
    return Synchronous(every(i1), rule, "pasgd")


def ldsgd(i1: int, i2: int, rule: SGD = SGD()) -> Synchronous:
    return Synchronous(alternating(i1, i2), rule, "ldsgd")
