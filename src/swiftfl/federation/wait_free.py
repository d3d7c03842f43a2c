"""Which algorithms can be those of nodes: whose steps never wait, for neighbours that come and go.

Nobody supervises nodes, so nobody could tell one that waits that its answer will never come: the neighbour
may have left, be slow, be stopped, or run another algorithm. And a cell that neighbours average into takes
their numbers unseen, where a model that was published is looked at before it is mixed.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import NoReturn

from swiftfl.algorithm import Algorithm, Around, averages_in_pairs, relies_on_the_start, why_only_simulated
from swiftfl.client import Client, State
from swiftfl.engines.setup import require_generator
from swiftfl.errors import UserError
from swiftfl.verbs import Verb, WaitFree, Waiting


@dataclass(frozen=True)
class NeverWaiting(Around[Verb]):
    """An algorithm that has not said that it waits: its first verb that does is refused, not served."""

    def step(self, me: Client, s: State) -> Generator[WaitFree, object, State]:
        reply = None
        step = self.algorithm.step(me, s)
        require_generator(self.algorithm, step)
        while True:
            try:
                verb = step.send(reply)
            except StopIteration as end:
                after: State = end.value
                return after
            if isinstance(verb, Waiting):
                _refuse(self.algorithm, f"whose step yields {type(verb).__name__}")
            reply = yield verb


def wait_free(algorithm: Algorithm[Verb]) -> NeverWaiting:
    """The algorithm as nodes run it; one that they cannot run is refused before anybody is connected."""
    why = why_only_simulated(algorithm)
    if why is not None:
        raise UserError(f"{algorithm.name} {why}, which nodes cannot do: use --engine virtual or sampled")
    if algorithm.in_rounds:
        _refuse(algorithm, "whose clients meet in rounds")
    if averages_in_pairs(algorithm):
        _refuse(algorithm, "whose clients average in pairs and wait for each other's answers")
    if relies_on_the_start(algorithm):
        raise UserError(
            f"nodes come and go, so {algorithm.name}, which relies on the clients and links of the start, "
            "cannot run"
        )
    return NeverWaiting(algorithm)


def _refuse(algorithm: Algorithm[Verb], what: str) -> NoReturn:
    raise UserError(f"nodes never wait, so {algorithm.name}, {what}, cannot run")
