"""Asynchronous gossip SGD: random pairs at the ticks of independent Poisson clocks (Boyd et al., 2006).

Each client has a clock that ticks `rate` times per unit of time on average. At a tick it averages with one
neighbour, drawn uniformly:

    X <- X W_k,    W_k = I - 1/2 (e_i - e_j)(e_i - e_j)'

which is atomic: a client is in one pair at a time. Between ticks it trains: x_i <- x_i - step_size g_i.

Deviations: Boyd averages values that stay as they are; the gradient steps between ticks are those of gossip
SGD. A client's unit of time is one of its own steps, because algorithms read no clock: of each step, the
number of ticks is Poisson(rate), and they come between its gradient and its move. Slow clients therefore
tick more slowly. `gossip` is the same in rounds, with a matching of all clients in each.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

from swiftfl.algorithms.registry import Context, algorithm
from swiftfl.client import Client, State
from swiftfl.rules import SgdRule, UpdateRule, updated
from swiftfl.settings import Rate
from swiftfl.streams import stream
from swiftfl.verbs import Add, AverageWith, Gradient, Load, Verb


@dataclass(frozen=True)
class AsyncGossip:
    """SGD, with averaging in pairs at the ticks of a Poisson clock; `seed` draws ticks and partners."""

    rate: float = 1.0
    rule: UpdateRule = SgdRule()
    seed: int = 0
    name: str = "gossip_async"
    in_rounds: ClassVar[bool] = False
    in_pairs: ClassVar[bool] = True

    def step(self, me: Client, s: State) -> Generator[Verb, object, State]:
        x = yield from Load()
        slope = yield from Gradient(x, me.batch(s.c))
        for partner in self.partners(me, s.c):
            yield from AverageWith(partner)
        move, memory = updated(self.rule, slope.g, x, me.step_size(s.c), s.memory)
        x = yield from Add(move, slope.statistics)
        return State(x, s.c + 1, memory)

    def partners(self, me: Client, c: int) -> list[int]:
        """With whom the client averages in step c, one after the other."""
        if not me.neighbours:
            return []
        draw = stream(self.seed, "clock", me.index, c)
        return [me.neighbours[k] for k in draw.integers(len(me.neighbours), size=draw.poisson(self.rate))]


@algorithm("gossip_async", weighted=False, influenced=False)
def gossip_async(context: Context, *, rate: Rate = 1.0) -> AsyncGossip:
    """Averages with random neighbours at the ticks of a Poisson clock; waits for locks only."""
    return AsyncGossip(rate, context.rule, context.seed)
