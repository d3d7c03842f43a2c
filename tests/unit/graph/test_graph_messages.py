"""CCS by messages: the same bits as for all clients at once, in any order, without deadlock."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from graph_strategies import cases
from hypothesis import given, settings
from hypothesis import strategies as st

import swiftfl as s
from swiftfl.graph.influence import Influence, is_uniform
from swiftfl.graph.messages import Accept, Hello, Message, Propose, Selection, Tie


def selections(topology: s.Topology, p: Influence, epoch: int = 1) -> list[Selection]:
    uniform = is_uniform(p)
    return [
        Selection(epoch, topology.n, uniform, i, float(p[i]), topology.neighbours(i))
        for i in range(topology.n)
    ]


def deliver_all(clients: list[Selection], order: random.Random, duplicates: float = 0.0) -> int:
    """Deliver in random order (even along one edge) until nothing is in flight; counts messages."""
    flight: list[tuple[int, int, Message]] = []
    for client in clients:
        flight += [(client.index, to, message) for to, message in client.start()]
    sent = len(flight)
    while flight:
        k = order.randrange(len(flight))
        flight[k], flight[-1] = flight[-1], flight[k]
        sender, to, message = flight[-1] if order.random() < duplicates else flight.pop()
        replies = clients[to].receive(sender, message)
        sent += len(replies)
        flight += [(to, receiver, reply) for receiver, reply in replies]
    return sent


@settings(max_examples=200, deadline=None)
@given(cases(), st.integers(0, 2**32), st.sampled_from([0.0, 0.3]))
def test_same_bits_in_any_order(case: tuple[s.Topology, Influence], seed: int, duplicates: float) -> None:
    topology, p = case
    clients = selections(topology, p)
    sent = deliver_all(clients, random.Random(seed), duplicates)
    d, e = topology.degrees, topology.edges
    ties = int((d[e[:, 0]] == d[e[:, 1]]).sum())
    assert sent == 4 * (topology.m - ties) + 6 * ties
    c = s.ccs(topology, p)
    for client in clients:
        assert client.done
        assert client.weights == c.weights(client.index)  # floats compared exactly


def test_same_bits_on_a_large_graph_with_hubs() -> None:
    topology = s.barabasi_albert(3000, 4, seed=5)
    for p in (s.uniform(3000), s.proportional_to(np.random.default_rng(0).lognormal(0, 2, 3000))):
        clients = selections(topology, p)
        deliver_all(clients, random.Random(1))
        c = s.ccs(topology, p)
        assert all(client.weights == c.weights(client.index) for client in clients)


def test_both_ends_agree_on_the_coefficient() -> None:
    topology = s.ring_of_cliques(10, 3)
    p = s.proportional_to(np.arange(1, 11))
    clients = selections(topology, p)
    deliver_all(clients, random.Random(0))
    for i, j in topology.edges.tolist():
        assert clients[i].coefficients[j] == clients[j].coefficients[i]


def test_messages_of_another_epoch_are_ignored() -> None:
    topology, p = s.star(4), s.uniform(4)
    old, new = selections(topology, p, epoch=1), selections(topology, p, epoch=2)
    for client in old:
        for to, message in client.start():
            assert new[to].receive(client.index, message) == []
    deliver_all(new, random.Random(0))
    assert all(client.done for client in new)
    assert not any(client.done for client in old)


def test_late_and_repeated_messages_change_nothing() -> None:
    clients = selections(s.path(3), s.uniform(3))
    deliver_all(clients, random.Random(0))
    before = clients[1].weights
    for message in (Hello(1, 1, 1 / 3), Accept(1, 1.0)):
        assert clients[1].receive(0, message) == []
    assert clients[1].weights is before


def test_stranger_is_an_error() -> None:
    with pytest.raises(ValueError, match="not a neighbour"):
        selections(s.path(3), s.uniform(3))[0].receive(2, Hello(1, 1, 1 / 3))


def test_single_client_is_done_at_once() -> None:
    (client,) = selections(s.ring(1), s.uniform(1))
    assert client.start() == []
    assert client.weights is not None
    assert client.weights.own == 1.0


def test_messages_are_small_frozen_values() -> None:
    for message in (Hello(1, 2, 0.5), Propose(1, 0.5), Tie(1, 0.5, 0.5), Accept(1, 1.0)):
        assert replace(message) == message
        with pytest.raises(AttributeError):
            message.epoch = 2  # type: ignore[misc]


def test_rounds_are_bounded_by_the_number_of_degrees() -> None:
    """All messages take one round; at most 2 (distinct degrees) + 2 rounds pass."""
    for topology in (s.ring(9), s.star(9), s.barabasi_albert(200, 3), s.ring_of_cliques(10, 3)):
        clients = selections(topology, s.uniform(topology.n))
        flight = [(c.index, to, m) for c in clients for to, m in c.start()]
        rounds = 0
        while flight:
            rounds += 1
            flight = [(to, r, m) for src, to, msg in flight for r, m in clients[to].receive(src, msg)]
        assert rounds <= 2 * len(set(topology.degrees.tolist())) + 2
