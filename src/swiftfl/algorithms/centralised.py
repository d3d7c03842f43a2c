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
from typing import ClassVar

from swiftfl.algorithms.registry import Context, algorithm
from swiftfl.client import Client, State
from swiftfl.rules import SGD, UpdateRule
from swiftfl.schedule import CommunicationSet, every
from swiftfl.settings import NotNegative
from swiftfl.vector import advance
from swiftfl.verbs import AllReduce, Gradient, Verb


@dataclass(frozen=True)
class AllReduceSgd:
    """Fully synchronous SGD: everybody steps along the mean gradient."""

    rule: UpdateRule = SGD()
    name: str = "allreduce"
    in_rounds: ClassVar[bool] = True

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
    rule: UpdateRule = SGD()
    name: str = "fedavg"
    in_rounds: ClassVar[bool] = True

    def step(self, me: Client, s: State) -> Generator[Verb, object, State]:
        slope = yield from Gradient(s.x, me.batch(s.c))
        move, memory = self.rule.update(slope.g, s.x, me.step_size(s.c), s.memory)
        x = advance(s.x, move, slope.statistics)
        if s.c in self.communication_set:
            x = yield from AllReduce(x, me.influence, round=s.c, by_server=True)
        return State(x, s.c + 1, memory)


@algorithm("allreduce", weighted=False, averages_models=False)
def allreduce(context: Context) -> AllReduceSgd:
    """Everybody steps along the mean gradient of all; waits for everybody at every step."""
    return AllReduceSgd(context.rule)


@algorithm("fedavg", weighted=False)
def fedavg(context: Context, *, i1: NotNegative = 1) -> FedAvg:
    """`i1` local steps, then the average of all clients; waits for everybody."""
    return FedAvg(every(i1), context.rule)
