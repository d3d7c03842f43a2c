"""The two yardsticks with a centre: all-reduce SGD, and FedAvg with a virtual server.

All-reduce SGD (every step, all clients hold the same model):

    x <- x - step_size sum_i p_i g_i(x)

FedAvg (McMahan et al., 2017): clients take `local` further steps of their own, then

    x_i <- sum_k p_k x_k    for every client i

p is the influence: uniform, or proportional to data as in McMahan's. With a `participation` C below 1 only
max(1, round(C n)) clients, drawn anew for each round, take these steps and upload (McMahan's Algorithm 1):

    x <- sum_{k in S} p_k x_k / sum_{k in S} p_k,    S drawn uniformly among all sets of that size

Deviations: the server is virtual: its averaging costs each client that takes part one upload and one
download. Who takes part comes from a seed that all clients share. Clients that were not drawn pass the
steps of the round without work (they still count as steps, so that all counters stay at the same round) and
get the new model at its end, not when they are drawn next. If all that were drawn are gone, the model stays
as it was. Clients keep their moments from round to round (McMahan's have none).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from swiftfl.algorithms.registry import Context, algorithm
from swiftfl.client import Client, State
from swiftfl.rules import SgdRule, UpdateRule, applied
from swiftfl.schedule import CommunicationSet, every
from swiftfl.settings import NotNegative, Share
from swiftfl.streams import stream
from swiftfl.vector import finite
from swiftfl.verbs import AllReduce, Gradient, Verb


@dataclass(frozen=True)
class AllReduceSgd:
    """Fully synchronous SGD: everybody steps along the mean gradient."""

    rule: UpdateRule = SgdRule()
    name: str = "allreduce"
    in_rounds: ClassVar[bool] = True

    def step(self, me: Client, s: State) -> Generator[Verb, object, State]:
        slope = yield from Gradient(s.x, me.batch(s.c))
        mean = yield from AllReduce(slope.packed(), me.influence, round=s.c)
        slope = slope.unpacked(mean)
        after = applied(self.rule, s.x, slope, s.x, me.step_size(s.c), s.memory)
        return State(after.x, s.c + 1, after.memory, after.finite)


@dataclass(frozen=True)
class FedAvg:
    """Local steps, then the server's average at the counters of the communication set.

    With a `participation` below 1 the number of `clients` must be known, of which `seed` draws some.
    """

    communication_set: CommunicationSet = every(4)
    rule: UpdateRule = SgdRule()
    name: str = "fedavg"
    participation: float = 1.0
    clients: int = 1
    seed: int = 0
    in_rounds: ClassVar[bool] = True

    def step(self, me: Client, s: State) -> Generator[Verb, object, State]:
        if self.participation < 1.0 and me.index not in self.drawn(s.c):
            if s.c not in self.communication_set:
                return State(s.x, s.c + 1, s.memory)
            mean = yield from AllReduce(s.x, 0.0, round=s.c, by_server=True)
            return State(mean if finite(mean) else s.x, s.c + 1, s.memory)
        slope = yield from Gradient(s.x, me.batch(s.c))
        x, memory, _ = applied(self.rule, s.x, slope, s.x, me.step_size(s.c), s.memory)
        if s.c in self.communication_set:
            x = yield from AllReduce(x, me.influence, round=s.c, by_server=True)
        return State(x, s.c + 1, memory)

    def drawn(self, c: int) -> frozenset[int]:
        """Who takes part in the round to which step c belongs: the same for every client."""
        while c not in self.communication_set:
            c += 1
        drawn = self._recent.get(c)
        if drawn is None:
            self._recent.clear()
            count = max(1, round(self.participation * self.clients))
            order = stream(self.seed, "participants", counter=c).permutation(self.clients)
            drawn = self._recent[c] = frozenset(order[:count].tolist())
        return drawn

    @cached_property
    def _recent(self) -> dict[int, frozenset[int]]:
        """The last round's draw, so that it is made once and not once per client."""
        return {}


@algorithm("allreduce", weighted=False, averages_models=False, edges="none")
def allreduce(context: Context) -> AllReduceSgd:
    """Everybody steps along the mean gradient of all; waits for everybody at every step."""
    return AllReduceSgd(context.rule)


@algorithm("fedavg", weighted=False, edges="none")
def fedavg(context: Context, *, i1: NotNegative = 1, participation: Share = 1.0) -> FedAvg:
    """`i1` local steps, then the average of all clients, or of a share drawn anew; waits for them."""
    return FedAvg(
        every(i1),
        context.rule,
        participation=participation,
        clients=context.topology.n,
        seed=context.seed,
    )
