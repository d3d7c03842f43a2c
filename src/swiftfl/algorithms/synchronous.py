"""D-SGD, PA-SGD and LD-SGD: one step under three communication sets.

    x_i <- sum_j w_{j,i} (x_j - step_size g_j)   if c in the communication set
    x_i <- x_i - step_size g_i                   otherwise

* D-SGD (Lian et al., NeurIPS 2017) averages after every step: `every(0)`.
* PA-SGD (Wang & Joshi, 2018) averages after I1 further local steps: `every(i1)`.
* LD-SGD (Li et al., 2019) alternates I1 local steps and I2 averaging ones: `alternating(i1, i2)`.

An averaging step waits for the neighbours' models of the same round.

What the authors of SWIFT ran as these three is another order: gradient, then average, then the optimiser's
step from the average, so that weight decay acts there too (`order="average_first"`):

    x_i <- x^_i - step_size (g_i + weight_decay x^_i),   x^_i = sum_j w_{j,i} x_j    (g_i taken at x_i)

It is SWIFT's own order: at equal speeds the two are the same method.

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
from swiftfl.rules import SgdRule, UpdateRule, applied
from swiftfl.schedule import CommunicationSet, Order, alternating, every
from swiftfl.settings import Count, NotNegative
from swiftfl.verbs import Exchange, Gradient, Mix, Verb


@dataclass(frozen=True)
class Synchronous:
    """Local SGD steps, with neighbourhood averaging at the counters of a communication set."""

    communication_set: CommunicationSet = every(0)
    rule: UpdateRule = SgdRule()
    name: str = "dsgd"
    order: Order = "update_first"
    in_rounds: ClassVar[bool] = True

    def step(self, me: Client, s: State) -> Generator[Verb, object, State]:
        slope = yield from Gradient(s.x, me.batch(s.c))
        x, memory = s.x, s.memory
        if self.order == "update_first":
            x, memory, _ = applied(self.rule, x, slope, x, me.step_size(s.c), memory)
        if s.c in self.communication_set:
            inbox = yield from Exchange(x, me.neighbours, round=s.c)
            x = yield from Mix(me.w, x, inbox)
        if self.order == "average_first":
            x, memory, _ = applied(self.rule, x, slope, x, me.step_size(s.c), memory)
        return State(x, s.c + 1, memory)


def dsgd(rule: UpdateRule = SgdRule(), order: Order = "update_first") -> Synchronous:
    return Synchronous(every(0), rule, "dsgd", order)


def pasgd(i1: int, rule: UpdateRule = SgdRule(), order: Order = "update_first") -> Synchronous:
    return Synchronous(every(i1), rule, "pasgd", order)


def ldsgd(i1: int, i2: int, rule: UpdateRule = SgdRule(), order: Order = "update_first") -> Synchronous:
    return Synchronous(alternating(i1, i2), rule, "ldsgd", order)


@algorithm("dsgd")
def _dsgd(context: Context, *, order: Order = "update_first") -> Synchronous:
    """Averages with all neighbours after every step; waits for their models of the same round."""
    return dsgd(context.rule, order)


@algorithm("pasgd")
def _pasgd(context: Context, *, i1: NotNegative = 1, order: Order = "update_first") -> Synchronous:
    """D-SGD with `i1` local steps between two averaging ones."""
    return pasgd(i1, context.rule, order)


@algorithm("ldsgd")
def _ldsgd(
    context: Context, *, i1: NotNegative = 1, i2: Count = 2, order: Order = "update_first"
) -> Synchronous:
    """Alternates `i1` local steps and `i2` averaging ones, of which there are at least two."""
    if i2 < 2:
        raise UserError("ldsgd with --i2 1 is pasgd: give --i2 of at least 2, or --algorithm pasgd")
    return ldsgd(i1, i2, context.rule, order)
