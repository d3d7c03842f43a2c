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
from typing import ClassVar

from swiftfl.algorithms.registry import Context, algorithm
from swiftfl.client import Client, State
from swiftfl.errors import UserError
from swiftfl.rules import SGD, UpdateRule
from swiftfl.schedule import CommunicationSet, alternating, every
from swiftfl.vector import advance
from swiftfl.verbs import Exchange, Gradient, Mix, Verb


@dataclass(frozen=True)
class Synchronous:
    """Local SGD steps, with neighbourhood averaging at the counters of a communication set."""

    communication_set: CommunicationSet = every(0)
    rule: UpdateRule = SGD()
    name: str = "dsgd"
    in_rounds: ClassVar[bool] = True

    def step(self, me: Client, s: State) -> Generator[Verb, object, State]:
        slope = yield from Gradient(s.x, me.batch(s.c))
        move, memory = self.rule.update(slope.g, s.x, me.step_size(s.c), s.memory)
        x = advance(s.x, move, slope.statistics)
        if s.c in self.communication_set:
            inbox = yield from Exchange(x, me.neighbours, round=s.c)
            x = yield from Mix(me.w, x, inbox)
        return State(x, s.c + 1, memory)


def dsgd(rule: UpdateRule = SGD()) -> Synchronous:
    return Synchronous(every(0), rule, "dsgd")


def pasgd(i1: int, rule: UpdateRule = SGD()) -> Synchronous:
    return Synchronous(every(i1), rule, "pasgd")


def ldsgd(i1: int, i2: int, rule: UpdateRule = SGD()) -> Synchronous:
    return Synchronous(alternating(i1, i2), rule, "ldsgd")


@algorithm("dsgd")
def _dsgd(context: Context) -> Synchronous:
    """Averages with all neighbours after every step; waits for their models of the same round."""
    return dsgd(context.rule)


@algorithm("pasgd")
def _pasgd(context: Context, *, i1: int = 1) -> Synchronous:
    """D-SGD with `i1` local steps between two averaging ones."""
    return pasgd(i1, context.rule)


@algorithm("ldsgd")
def _ldsgd(context: Context, *, i1: int = 1, i2: int = 2) -> Synchronous:
    """Alternates `i1` local steps and `i2` averaging ones, of which there are at least two."""
    if i2 < 2:
        raise UserError(f"ldsgd with i2 = {i2} is pasgd: give i2 of at least 2, or --algorithm pasgd")
    return ldsgd(i1, i2, context.rule)
