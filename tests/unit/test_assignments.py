"""What clients are told to run CCS themselves: it gives the coefficients of a central renewal."""

from __future__ import annotations

import json

import numpy as np
import pytest

from swiftfl.algorithms import Swift
from swiftfl.engines.assignment import Assignment, first_assignments
from swiftfl.engines.dynamics import Dynamics
from swiftfl.engines.membership import Membership
from swiftfl.graph import Topology, barabasi_albert, erdos_renyi, proportional_to, ring, uniform
from swiftfl.graph.messages import Accept, Hello, Message, Propose, Tie, pack, unpack
from swiftfl.schedule import every
from swiftfl.vector import Weights
from worlds import quadratic_setup


def run_all(told: dict[int, Assignment]) -> dict[int, Weights]:
    """Every client's own run of CCS, its messages delivered one after another."""
    clients = {i: each.selection(i) for i, each in told.items()}
    flight = [(i, to, message) for i, client in clients.items() for to, message in client.start()]
    while flight:
        sender, to, message = flight.pop()
        message = unpack(*pack(message))
        flight += [(to, k, reply) for k, reply in clients[to].receive(sender, message)]
    assert all(client.weights is not None for client in clients.values())
    return {i: client.weights for i, client in clients.items() if client.weights is not None}


def network(graph: Topology, skewed: bool, measured: bool = False) -> Membership:
    scores = np.random.default_rng(1).lognormal(0, 1, graph.n)
    p = proportional_to(scores) if skewed else uniform(graph.n)
    return Membership(graph, p.tolist(), "ccs", Dynamics(measured=measured, keep_objective=measured), 0)


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("graph", [ring(9), barabasi_albert(40, 3, seed=2), erdos_renyi(30, 0.1, seed=4)])
def test_a_renewal_by_messages_has_the_bits_of_the_central_one(graph: Topology, skewed: bool) -> None:
    """Also where losses leave several components, or clients alone."""
    central, told = network(graph, skewed), network(graph, skewed)
    order = np.random.default_rng(7).permutation(graph.n).tolist()
    for lost in order[: graph.n // 2]:
        for each in (central, told):
            each.known.discard(lost)
        expected = central.renew()
        assignments = told.assignments()
        assert run_all(assignments) == {i: w for i, (w, _) in expected.items()}  # floats, exactly
        assert {each.epoch for each in assignments.values()} == {told.renewals}
    assert central.renewals == told.renewals


def test_the_scale_of_the_step_size_goes_with_it() -> None:
    graph = ring(6)
    central, told = network(graph, True, measured=True), network(graph, True, measured=True)
    for each in (central, told):
        each.measure([5, 9, 1, 4, 4, 7], set())
        each.known.discard(2)
    scales = {i: scale for i, (_, scale) in central.renew().items()}
    assignments = told.assignments()
    assert {i: each.scale for i, each in assignments.items()} == scales
    assert len(set(scales.values())) > 1
    assert run_all(assignments) == {i: w for i, (w, _) in central.renew().items()}


@pytest.mark.parametrize("skewed", [False, True])
def test_the_first_epoch_gives_the_weights_of_the_setup(skewed: bool) -> None:
    graph = barabasi_albert(12, 2, seed=0)
    p = np.array(network(graph, skewed).given)
    setup, *_ = quadratic_setup(Swift(every(0)), graph, p)
    found = run_all(dict(enumerate(first_assignments(setup.weights, setup.influence))))
    assert [found[i] for i in range(graph.n)] == list(setup.weights)


def test_assignments_and_messages_survive_being_packed() -> None:
    one = Assignment(3, 7, True, 1 / 3, (1, 4), 0.1)
    assert Assignment.unpack(json.loads(json.dumps(one.pack()))) == one
    messages: list[Message] = [Hello(2, 5, 0.1), Propose(2, 1 / 3), Tie(2, 0.2, 1 / 7), Accept(2, 0.9)]
    assert [unpack(*pack(message)) for message in messages] == messages
