"""Prague: partial all-reduce in random groups (Luo et al., ASPLOS 2020).

    X^{k+1} = (X^k - step_size G^k) F^k,    F^k = sum_{groups S of step k} 1/|S| 1_S 1_S'

(and 1 on the diagonal of whoever is in no group). In each round the clients are divided at random into
groups of `group_size`; all members of a group go on with the mean of their models. A client waits for its
own group only.

Groups here are drawn anew in each round: clients in random order; each that is still free begins a group,
to which free clients are added, in random order, that have links to all of its members. On a complete graph
these are the paper's random groups; on a ring, which has no three clients that are all linked, they are
pairs.

Deviations: groups come from a seed that all clients share, not from a coordinator which is asked by whoever
is ready, so that no two groups of a round overlap (the paper's may, and then take place one after the
other), and slow clients are not left out of groups (the paper's smart generator does that by a threshold of
counters). Models within a group are sent to each member, |S| - 1 messages each, instead of by a ring.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from swiftfl.algorithms.registry import Context, algorithm
from swiftfl.client import Client, State
from swiftfl.graph.topology import Topology
from swiftfl.rules import SgdRule, UpdateRule, applied
from swiftfl.settings import Count
from swiftfl.streams import stream
from swiftfl.vector import Weights
from swiftfl.verbs import Exchange, Gradient, Mix, Verb


@dataclass(frozen=True)
class Prague:
    """SGD steps, each followed by the mean over a random group of at most `group_size` linked clients."""

    topology: Topology
    group_size: int = 3
    rule: UpdateRule = SgdRule()
    seed: int = 0
    name: str = "prague"
    in_rounds: ClassVar[bool] = True

    def step(self, me: Client, s: State) -> Generator[Verb, object, State]:
        slope = yield from Gradient(s.x, me.batch(s.c))
        x, memory, _ = applied(self.rule, s.x, slope, s.x, me.step_size(s.c), s.memory)
        others = [k for k in self.group(me, round=s.c) if k != me.index]
        inbox = yield from Exchange(x, tuple(k for k in others if k in me.neighbours), round=s.c)
        if others:
            # The share of a member that cannot be reached stays with self: both do so, and the mean is kept.
            share = 1.0 / (len(others) + 1)
            x = yield from Mix(Weights(share, dict.fromkeys(others, share)), x, inbox)
        return State(x, s.c + 1, memory)

    def groups(self, round: int) -> list[tuple[int, ...]]:
        """How the clients are divided in a round; the same for every client."""
        order = stream(self.seed, "groups", counter=round).permutation(self.topology.n).tolist()
        free, groups = set(order), []
        for first in order:
            if first not in free:
                continue
            free.remove(first)
            group, linked = [first], self._linked[first] & free
            for k in order:
                if len(group) == self.group_size or not linked:
                    break
                if k in linked:
                    group.append(k)
                    free.remove(k)
                    linked = linked & self._linked[k]
            groups.append(tuple(sorted(group)))
        return groups

    def group(self, me: Client, round: int) -> tuple[int, ...]:
        groups = self._recent.get(round)
        if groups is None:
            self._recent.clear()
            groups = self._recent[round] = {i: group for group in self.groups(round) for i in group}
        return groups[me.index]

    @cached_property
    def _linked(self) -> list[frozenset[int]]:
        return [frozenset(self.topology.neighbours(i)) for i in range(self.topology.n)]

    @cached_property
    def _recent(self) -> dict[int, dict[int, tuple[int, ...]]]:
        """The last round's groups, so that they are drawn once and not once per client."""
        return {}


@algorithm("prague", weighted=False, edges="first", influenced=False)
def prague(context: Context, *, group_size: Count = 3) -> Prague:
    """The mean over a random group of `group_size` after every step; waits for the group only."""
    return Prague(context.topology, group_size, context.rule, context.seed)
