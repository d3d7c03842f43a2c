"""What averaging does to what an update rule remembers (momentum, Adam's moments): kept, or set anew.

Models are averaged, moments are not: each client keeps its own, which belong to its own gradients (`kept`).
With `reset` a client forgets them in each step in which it averaged: the next step begins with `rule.init`.
What an algorithm itself remembers (`Remembering`) stays.

This needs nothing of an algorithm. Verbs are data, so a wrapper sees which of them average models: a `Mix`
with neighbours, a `Gather`, an `AverageWith` (alone or `Overlapped`), an `AllReduce` by a server (one
without is a mean of gradients).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeVar

from swiftfl.algorithm import Around
from swiftfl.client import Client, State
from swiftfl.rules import first_memory
from swiftfl.verbs import AllReduce, AverageWith, Gather, Mix, Overlapped, Verb

V = TypeVar("V", bound=Verb)


def averages(verb: Verb) -> bool:
    """Whether a verb averages a client's model with models of others."""
    if isinstance(verb, Mix):
        return bool(verb.w.of)
    return isinstance(verb, AverageWith | Overlapped | Gather) or (
        isinstance(verb, AllReduce) and verb.by_server
    )


@dataclass(frozen=True)
class ResetMoments(Around[V]):
    """An algorithm whose clients begin with fresh memory after each step in which they averaged."""

    def step(self, me: Client, s: State) -> Generator[V, object, State]:
        averaged, reply = False, None
        step = self.algorithm.step(me, s)
        while True:
            try:
                verb = step.send(reply)
            except StopIteration as end:
                after: State = end.value
                if not averaged:
                    return after
                return State(after.x, after.c, first_memory(self.rule, after.x, after.memory))
            averaged = averaged or averages(verb)
            reply = yield verb
