"""Any algorithm that averages with its neighbours' weights, with a mixing rule in place of the average.

Algorithms know nothing of this: verbs are data, and a wrapper gives each `Mix` that passes the rule. Whatever
averages in another way (pairs of cells, means over all) has no inbox that a rule could look at.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeVar

from swiftfl.algorithm import Around, client_check_of
from swiftfl.client import Client, State
from swiftfl.errors import UserError
from swiftfl.mixing import MixRule
from swiftfl.moments import averages
from swiftfl.verbs import Mix, Verb

V = TypeVar("V", bound=Verb)


@dataclass(frozen=True)
class RobustMixing(Around[V]):
    """An algorithm whose mixes follow a rule."""

    mixing: MixRule

    def check(self, client: Client) -> None:
        """Of the algorithm, if it has one, and then of the rule."""
        of_algorithm = client_check_of(self.algorithm)
        if of_algorithm is not None:
            of_algorithm(client)
        of_rule = getattr(self.mixing, "check", None)
        if of_rule is not None:
            of_rule(client.index, client.w)

    def step(self, me: Client, s: State) -> Generator[V, object, State]:
        reply = None
        step = self.algorithm.step(me, s)
        while True:
            try:
                verb = step.send(reply)
            except StopIteration as end:
                after: State = end.value
                return after
            if isinstance(verb, Mix):
                verb.rule = verb.rule or self.mixing
            elif averages(verb):
                raise UserError(
                    f"a mixing rule has no effect: {self.name} averages by {type(verb).__name__}, not by Mix"
                )
            reply = yield verb
