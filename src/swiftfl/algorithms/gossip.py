"""Gossip SGD: after each gradient step, random pairs of neighbours average (Boyd et al., 2006).

    X^{k+1} = (X^k - step_size G^k) W^k,    W^k = I - 1/2 sum_{(i,j) in M^k} (e_i - e_j)(e_i - e_j)'

M^k is a random maximal matching of the graph: the edges are put into a random order, and each whose
two ends are still free is taken. Every client averages with at most one neighbour in a round.

Deviation: Boyd's pairs meet one at a time, at the ticks of independent clocks; here a round's pairs
meet together, so that the method has the same rounds as D-SGD. The order of the edges comes from a
seed that all clients share.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from swiftfl.algorithms.registry import Context, algorithm
from swiftfl.client import Client, State
from swiftfl.graph.topology import Topology
from swiftfl.rules import SgdRule, UpdateRule, applied
from swiftfl.streams import stream
from swiftfl.vector import Weights
from swiftfl.verbs import Exchange, Gradient, Mix, Verb


@dataclass(frozen=True)
class Gossip:
    """SGD steps with averaging in random pairs."""

    topology: Topology
    rule: UpdateRule = SgdRule()
    seed: int = 0
    name: str = "gossip"
    in_rounds: ClassVar[bool] = True

    def step(self, me: Client, s: State) -> Generator[Verb, object, State]:
        slope = yield from Gradient(s.x, me.batch(s.c))
        x, memory, _ = applied(self.rule, s.x, slope, s.x, me.step_size(s.c), s.memory)
        partner = self.partner(me, round=s.c)
        partners = (partner,) if partner in me.neighbours else ()
        inbox = yield from Exchange(x, partners, round=s.c)
        if partners:
            x = yield from Mix(Weights(0.5, {partner: 0.5}), x, inbox)
        return State(x, s.c + 1, memory)

    def matching(self, round: int) -> np.ndarray:
        """Each client's partner in a round, or -1."""
        partner = np.full(self.topology.n, -1)
        order = stream(self.seed, "gossip", counter=round).permutation(len(self.topology.edges))
        for i, j in self.topology.edges[order].tolist():
            if partner[i] < 0 and partner[j] < 0:
                partner[i], partner[j] = j, i
        return partner

    def partner(self, me: Client, round: int) -> int:
        matching = self._recent.get(round)
        if matching is None:
            self._recent.clear()
            matching = self._recent[round] = self.matching(round)
        return int(matching[me.index])

    @cached_property
    def _recent(self) -> dict[int, np.ndarray]:
        """The last round's pairs, so that they are drawn once and not once per client."""
        return {}


@algorithm("gossip", weighted=False, edges="first", influenced=False)
def gossip(context: Context) -> Gossip:
    """Random pairs of neighbours average after every step; waits for the partner."""
    return Gossip(context.topology, context.rule, context.seed)
