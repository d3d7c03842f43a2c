"""MATCHA: decentralized SGD over a random subset of the links (Wang, Sahu, Joshi, Kar, 2019).

The graph is decomposed into matchings M_1 .. M_m. In round k, matching j is active with probability
q_j, independently, so that only a share `budget` of the matchings communicates on average:

    X^{k+1} = (X^k - step_size G^k) W^k,    W^k = I - alpha sum_{j active} L_j

The q_j maximise the algebraic connectivity of the expected graph under the budget, and alpha
minimises the spectral norm of E[W'W] - J (`swiftfl.graph.matchings`).

Deviation: which matchings are active is drawn from a seed that all clients share, for one round at a
time, instead of being decided for the whole run beforehand.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from swiftfl.algorithms.registry import Context, algorithm
from swiftfl.client import Client, State
from swiftfl.graph.matchings import MatchingPlan, matching_plan
from swiftfl.rules import SgdRule, UpdateRule, applied
from swiftfl.settings import Share
from swiftfl.streams import stream
from swiftfl.vector import Weights
from swiftfl.verbs import Exchange, Gradient, Mix, Verb


@dataclass(frozen=True)
class Matcha:
    """D-SGD over the matchings that are active in a round."""

    plan: MatchingPlan
    rule: UpdateRule = SgdRule()
    seed: int = 0
    name: str = "matcha"
    in_rounds: ClassVar[bool] = True

    def step(self, me: Client, s: State) -> Generator[Verb, object, State]:
        slope = yield from Gradient(s.x, me.batch(s.c))
        x, memory, _ = applied(self.rule, s.x, slope, s.x, me.step_size(s.c), s.memory)
        partners = self.partners(me, round=s.c)
        inbox = yield from Exchange(x, partners, round=s.c)
        if partners:
            x = yield from Mix(self.weights(partners), x, inbox)
        return State(x, s.c + 1, memory)

    def active(self, round: int) -> np.ndarray:
        """Which matchings are active in a round; the same for every client."""
        draws = stream(self.seed, "matcha", counter=round).random(len(self.plan.probabilities))
        return draws < self.plan.probabilities

    def partners(self, me: Client, round: int) -> tuple[int, ...]:
        active = self._recent.get(round)
        if active is None:
            self._recent.clear()
            active = self._recent[round] = self.active(round)
        matched = self.plan.partner[active, me.index]
        return tuple(k for k in sorted(matched.tolist()) if k in me.neighbours)

    def weights(self, partners: tuple[int, ...]) -> Weights:
        alpha = self.plan.alpha
        return Weights(1.0 - alpha * len(partners), dict.fromkeys(partners, alpha))

    @cached_property
    def _recent(self) -> dict[int, np.ndarray]:
        """The last round's draw, so that it is made once and not once per client."""
        return {}


@algorithm("matcha", weighted=False, edges="first", influenced=False)
def matcha(context: Context, *, budget: Share = 0.5) -> Matcha:
    """D-SGD over a random share of the links, `budget`; waits for the partners of the round."""
    return Matcha(matching_plan(context.topology, budget), context.rule, context.seed)
