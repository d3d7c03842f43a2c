"""A census by messages: whoever can reach each other learns how many they are, whatever the order."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swiftfl.graph import from_edges
from swiftfl.graph.census import CONSENSUS, Census, CensusOutgoing, Share, pack, unpack


class World:
    """Clients with links: messages wait in a queue per directed edge, and are taken in once, or twice."""

    def __init__(self, n: int, edges: list[tuple[int, int]], seed: int) -> None:
        self.near = {i: sorted({j for e in edges for j in e if i in e and j != i}) for i in range(n)}
        self.clients = {i: Census(100 + i) for i in range(n)}
        self.shares = {i: Share(1.0 + i % 3, 2.0) for i in range(n)}
        self.queues: dict[tuple[int, int], list[tuple[int, int, float, float]]] = {}
        self.random = random.Random(seed)

    def begin(self, i: int, purpose: int = 0) -> None:
        self.send(i, self.clients[i].begin(self.near[i], self.shares[i], purpose))

    def send(self, i: int, out: CensusOutgoing) -> None:
        for k, message in out:
            self.queues.setdefault((i, k), []).append(pack(message))

    def step(self) -> bool:
        waiting = [edge for edge, queue in self.queues.items() if queue and edge[0] in self.near[edge[1]]]
        if not waiting:
            return False
        i, k = self.random.choice(waiting)
        packed = self.queues[i, k].pop(0)
        for _ in range(self.random.choice((1, 2))):
            self.send(k, self.clients[k].receive(i, unpack(*packed), self.near[k], self.shares[k]))
        return True

    def settle(self) -> None:
        while self.step():
            pass

    def cut(self, i: int, k: int) -> None:
        """Both ends notice, at their own time, and begin again."""
        self.near[i].remove(k)
        self.near[k].remove(i)
        self.queues.pop((i, k), None)
        self.queues.pop((k, i), None)
        self.begin(i)
        for _ in range(self.random.randrange(5)):
            self.step()
        self.begin(k)

    def check(self) -> None:
        edges = [(i, k) for i, near in self.near.items() for k in near if i < k]
        labels = from_edges(edges, len(self.near)).components.tolist()
        for i, client in self.clients.items():
            members = [k for k in self.near if labels[k] == labels[i]]
            result = client.result
            assert result is not None, f"client {i} knows nothing"
            assert result.n == len(members)
            assert result.uniform == (len({self.shares[k].p for k in members}) == 1)
            assert result.total.p == pytest.approx(sum(self.shares[k].p for k in members))
            assert result.total.given == pytest.approx(2.0 * len(members))
            assert {self.clients[k].epoch for k in members} == {client.epoch}
        scaled = [
            client.result.scale * client.result.share.p for client in self.clients.values() if client.result
        ]
        assert all(value > 0 for value in scaled)


def tree(n: int, random: random.Random) -> list[tuple[int, int]]:
    return [(random.randrange(i), i) for i in range(1, n)]


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 12), st.integers(0, 10_000), st.integers(1, 4))
def test_all_who_reach_each_other_agree(n: int, seed: int, beginners: int) -> None:
    chance = random.Random(seed)
    edges = tree(n, chance) + [(i, j) for i in range(n) for j in range(i + 1, n) if chance.random() < 0.2]
    world = World(n, sorted(set(edges)), seed)
    for _ in range(beginners):
        world.begin(chance.randrange(n))
        for _ in range(chance.randrange(6)):
            world.step()
    world.settle()
    world.check()


@settings(max_examples=150, deadline=None)
@given(st.integers(2, 10), st.integers(0, 10_000))
def test_a_cut_in_the_middle_of_a_census_is_counted(n: int, seed: int) -> None:
    chance = random.Random(seed)
    edges = sorted(set(tree(n, chance) + [(i, (i + 1) % n) for i in range(n) if i < (i + 1) % n]))
    world = World(n, edges, seed)
    world.begin(0)
    for _ in range(chance.randrange(3 * n)):
        world.step()
    world.cut(*chance.choice(edges))
    world.settle()
    world.check()


def test_the_tree_of_a_consensus_reaches_everybody_once() -> None:
    world = World(6, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 5), (1, 4)], 1)
    world.begin(2, CONSENSUS)
    world.settle()
    results = {i: client.result for i, client in world.clients.items()}
    assert all(result is not None and result.purpose == CONSENSUS for result in results.values())
    children = sorted(k for result in results.values() if result for k in result.children)
    assert children == [0, 1, 3, 4, 5]
    assert all(
        result.parent is None or i in results[result.parent].children
        for i, result in results.items()
        if result and results
    )  # type: ignore[union-attr]


def test_alone() -> None:
    one = Census(3)
    assert one.begin([], Share(0.2, 0.4)) == []
    assert one.result is not None
    assert (one.result.n, one.result.uniform, one.result.scale) == (1, True, 1.0)
