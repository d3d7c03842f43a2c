"""Directed views of an undirected graph: who sends to whom, where messages need not go both ways.

A topology says which clients have a link. Its directed view uses each link in both directions (`both`), or
in one only (`one_way`), such that every client can still be reached from every other. By Robbins' theorem
that is possible exactly if no link is a bridge; a depth-first search finds such directions: away from the
root along the edges of its tree, towards the root along all others. A ring becomes a directed ring.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from swiftfl.errors import UserError
from swiftfl.graph.topology import Topology

Direction: TypeAlias = Literal["both", "one_way"]
"""Whether messages go along each link in both directions, or in one only."""


@dataclass(frozen=True)
class Directed:
    """For each client, to whom it sends and from whom it receives; both ascending."""

    out: tuple[tuple[int, ...], ...]
    into: tuple[tuple[int, ...], ...]

    @property
    def most_into(self) -> int:
        """From how many a client receives, at most."""
        return max(map(len, self.into), default=0)


def directed(topology: Topology, direction: Direction) -> Directed:
    """
    >>> from swiftfl.graph.generators import ring
    >>> directed(ring(4), "one_way").out
    ((1,), (2,), (3,), (0,))
    """
    if direction == "both":
        near = tuple(topology.neighbours(i) for i in range(topology.n))
        return Directed(near, near)
    out: list[list[int]] = [[] for _ in range(topology.n)]
    into: list[list[int]] = [[] for _ in range(topology.n)]
    for i, k in _one_way(topology):
        out[i].append(k)
        into[k].append(i)
    return Directed(tuple(tuple(sorted(ks)) for ks in out), tuple(tuple(sorted(ks)) for ks in into))


def _one_way(topology: Topology) -> list[tuple[int, int]]:
    """Each link in the direction in which a depth-first search first looks along it; no link is a bridge."""
    topology.require_connected()
    near = [topology.neighbours(i) for i in range(topology.n)]
    number = {0: 0}  # in the order of the search
    lowest = {0: 0}  # the lowest number that can be reached from a client's part of the tree
    arcs: list[tuple[int, int]] = []
    stack = [(0, -1, iter(near[0]))]
    while stack:
        i, parent, rest = stack[-1]
        k = next(rest, None)
        if k is None:
            stack.pop()
            if parent >= 0:
                lowest[parent] = min(lowest[parent], lowest[i])
                if lowest[i] > number[parent]:
                    raise UserError(
                        f"the link between clients {min(parent, i)} and {max(parent, i)} is the only one "
                        "between two parts of the graph: messages cannot go along it in one direction only"
                    )
        elif k not in number:
            number[k] = lowest[k] = len(number)
            arcs.append((i, k))
            stack.append((k, i, iter(near[k])))
        elif k != parent and number[k] < number[i]:
            arcs.append((i, k))
            lowest[i] = min(lowest[i], number[k])
    return arcs
