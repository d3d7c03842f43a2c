"""The two yardsticks with a centre: all-reduce SGD, and FedAvg with a virtual server.

All-reduce SGD (every step, all clients hold the same model):

    x <- x - step_size sum_i p_i g_i(x)

FedAvg (McMahan et al., 2017): clients take `local` further steps of their own, then

    x_i <- sum_k p_k x_k    for every client i

p is the influence: uniform, or proportional to data as in McMahan's.

Deviation: every client takes part in every round of FedAvg (their C = 1), and the server is virtual:
its averaging costs its clients one upload and one download each.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from swiftfl.client import Client, State
from swiftfl.rules import SGD
from swiftfl.schedule import CommunicationSet, every
from swiftfl.vector import advance
from swiftfl.verbs import AllReduce, Gradient, Verb


@dataclass(frozen=True)
class AllReduceSgd:
    """Fully synchronous SGD: everybody steps along the mean gradient."""

    rule: SGD = SGD()
    name: str = "allreduce"

    def step(self, me: Client, s: State) -> Generator[Verb, object, State]:
        slope = yield from Gradient(s.x, me.batch(s.c))
        mean = yield from AllReduce(slope.packed(), me.influence, round=s.c)
        slope = slope.unpacked(mean)
        move, memory = self.rule.update(slope.g, s.x, me.step_size(s.c), s.memory)
        return State(advance(s.x, move, slope.statistics), s.c + 1, memory)


@dataclass(frozen=True)
class FedAvg:
    """Local steps, then the server's average at the counters of the communication set."""

    communication_set: CommunicationSet = every(4)
    rule: SGD = SGD()
    name: str = "fedavg"

    def step(self, me: Client, s: State) -> Generator[Verb, object, State]:
        slope = yield from Gradient(s.x, me.batch(s.c))
        move, memory = self.rule.update(slope.g, s.x, me.step_size(s.c), s.memory)
        x = advance(s.x, move, slope.statistics)
        if s.c in self.communication_set:
            x = yield from AllReduce(x, me.influence, round=s.c, by_server=True)
        return State(x, s.c + 1, memory)
