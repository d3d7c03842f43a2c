"""AD-PSGD: asynchronous decentralized parallel SGD (Lian et al., ICML 2018, Algorithm 1).

Each client, at its own speed and with the others changing its model cell meanwhile:

    x^    <- its cell                          (the cell may change during the gradient)
    g     <- gradient at x^
    cells <- cells W_k                         (averages its cell with one random neighbour's)
    cell  <- cell - step_size g(x^)

In matrix form, X_{k+1} = X_k W_k - step_size G(X^_k), with W_k averaging one pair. The convergence
proof bounds the delay k - k^ between reading and writing; engines report the largest one seen.

The paper runs gradient and averaging in two threads, so that the averaging costs no time where it is the
shorter one: `averaging="background"`. With `after` it begins when the gradient is there.

Deviations: the partner is uniform among all neighbours (the authors make the graph bipartite to
avoid deadlocks among locks; here a pair's cells are taken in one atomic verb). In the background each
gradient has exactly one averaging beside it (the authors' two threads do not count each other's turns). A
client that has finished its data goes on serving its cell.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

from swiftfl.algorithms.registry import Context, algorithm
from swiftfl.client import Client, State
from swiftfl.rules import SgdRule, UpdateRule, updated
from swiftfl.schedule import Averaging
from swiftfl.streams import stream
from swiftfl.verbs import Add, AverageWith, Gradient, Load, Overlapped, Verb


@dataclass(frozen=True)
class AdPsgd:
    """Pairwise averaging with a random neighbour at every gradient; `seed` draws the partners."""

    rule: UpdateRule = SgdRule()
    seed: int = 0
    name: str = "adpsgd"
    averaging: Averaging = "after"
    in_rounds: ClassVar[bool] = False
    in_pairs: ClassVar[bool] = True

    def step(self, me: Client, s: State) -> Generator[Verb, object, State]:
        x = yield from Load()
        batch = me.batch(s.c)
        if not me.neighbours:
            slope = yield from Gradient(x, batch)
        elif self.averaging == "background":
            slope, _ = yield from Overlapped(Gradient(x, batch), AverageWith(self.partner(me, s.c)))
        else:
            slope = yield from Gradient(x, batch)
            yield from AverageWith(self.partner(me, s.c))
        move, memory = updated(self.rule, slope.g, x, me.step_size(s.c), s.memory)
        x = yield from Add(move, slope.statistics)
        return State(x, s.c + 1, memory)

    def partner(self, me: Client, c: int) -> int:
        return me.neighbours[stream(self.seed, "partner", me.index, c).integers(len(me.neighbours))]


@algorithm("adpsgd", weighted=False, influenced=False)
def adpsgd(context: Context, *, averaging: Averaging = "after") -> AdPsgd:
    """Averages its cell with one random neighbour's at every gradient; waits for locks only."""
    return AdPsgd(context.rule, context.seed, averaging=averaging)
