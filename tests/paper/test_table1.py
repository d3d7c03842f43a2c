"""Table 1: communication-time complexities, from counters of rounds, messages, bytes and seconds.

D-SGD  O(T max_j C_j)      PA-SGD, LD-SGD  O(|C_s| max_j C_j)      AD-PSGD  O(T C_i)      SWIFT  O(|C_s| C_i)
"""

from __future__ import annotations

from typing import Any

import pytest

import swiftfl
from swiftfl.algorithms import AdPsgd, Swift, dsgd, ldsgd, pasgd
from swiftfl.costs import Costs, Link
from swiftfl.engines import VirtualEngine
from swiftfl.schedule import every
from worlds import quadratic_setup, run_to_end

GRAPH = swiftfl.ring_of_cliques(9, clusters=3)
N, STEPS, DIMENSION = 9, 60, 7
MODEL = 8 * DIMENSION
DEGREES = GRAPH.degrees.tolist()
SEND, MIX, LATENCY = 0.0003, 0.0002, 0.004
FAR = Link(latency=0.1, bandwidth=1e9)
COSTS = Costs(compute=0.01, send=SEND, mix=MIX, latency=LATENCY, bandwidth=1e9)

# Per client, |C_s| of the first 60 counters, by hand.
ROUNDS: dict[str, tuple[Any, int]] = {
    "D-SGD": (dsgd(), 60),
    "PA-SGD": (pasgd(1), 30),
    "LD-SGD": (ldsgd(1, 2), 40),
    "AD-PSGD": (AdPsgd(), 60),
    "SWIFT C_0": (Swift(every(0)), 60),
    "SWIFT C_1": (Swift(every(1)), 30),
    "SWIFT C_3": (Swift(every(3)), 15),
}


def run(algorithm: Any, costs: Costs = COSTS) -> VirtualEngine:
    setup, _, _ = quadratic_setup(
        algorithm, GRAPH, dimension=DIMENSION, steps_per_epoch=STEPS, epochs=1, costs=costs
    )
    engine: VirtualEngine = run_to_end(VirtualEngine(setup))
    return engine


@pytest.mark.parametrize("method", ROUNDS)
def test_rounds_are_those_of_the_table(method: str) -> None:
    algorithm, rounds = ROUNDS[method]
    assert run(algorithm).figures()["communication"]["rounds"] == [rounds] * N


@pytest.mark.parametrize("method", ["D-SGD", "PA-SGD", "LD-SGD"])
def test_synchronous_methods_send_one_message_per_neighbour_and_round(method: str) -> None:
    algorithm, rounds = ROUNDS[method]
    found = run(algorithm).figures()["communication"]
    assert found["messages"] == [rounds * degree for degree in DEGREES]
    assert found["bytes"] == [rounds * degree * MODEL for degree in DEGREES]


def test_pairs_send_two_messages_per_round() -> None:
    found = run(AdPsgd()).figures()["communication"]
    assert sum(found["messages"]) == 2 * STEPS * N
    assert sum(found["bytes"]) == 2 * STEPS * N * MODEL


@pytest.mark.parametrize("method", ["SWIFT C_0", "SWIFT C_1", "SWIFT C_3"])
def test_line_7_sends_at_every_step_where_the_table_counts_the_communication_set(method: str) -> None:
    """The slip: only fetching and averaging are rarer with a larger s, not what is sent."""
    algorithm, rounds = ROUNDS[method]
    found = run(algorithm).figures()["communication"]
    assert found["messages"] == [STEPS * degree for degree in DEGREES]
    by_the_table = [rounds * degree for degree in DEGREES]
    assert [sent / counted for sent, counted in zip(found["messages"], by_the_table, strict=True)] == [
        STEPS / rounds
    ] * N


def spent(engine: VirtualEngine) -> list[float]:
    seconds = engine.seconds()
    return [a + b for a, b in zip(seconds["communication"], seconds["waiting"], strict=True)]


@pytest.mark.parametrize("method", ["SWIFT C_0", "SWIFT C_1", "SWIFT C_3"])
def test_swift_pays_its_own_communication_only(method: str) -> None:
    """T sends and |C_s| averages, whatever the links of others are like: O(T) by line 7, with C_i its own."""
    algorithm, rounds = ROUNDS[method]
    expected = [STEPS * degree * SEND + rounds * degree * MIX for degree in DEGREES]
    far = {tuple(edge): FAR for edge in GRAPH.edges.tolist()[::3]}
    for costs in (COSTS, Costs(compute=0.01, send=SEND, mix=MIX, latency=LATENCY, bandwidth=1e9, links=far)):
        assert spent(run(algorithm, costs)) == pytest.approx(expected)


@pytest.mark.parametrize("method", ["D-SGD", "PA-SGD", "LD-SGD"])
def test_synchronous_methods_pay_the_slowest_link_near_them(method: str) -> None:
    algorithm, rounds = ROUNDS[method]
    edge = (0, 1)
    assert list(edge) in GRAPH.edges.tolist()
    costs = Costs(compute=0.01, send=SEND, mix=MIX, latency=LATENCY, bandwidth=1e9, links={edge: FAR})
    equal, slowed = spent(run(algorithm)), spent(run(algorithm, costs))
    most = max(DEGREES) * (SEND + MIX) + 2 * LATENCY
    assert all(seconds <= rounds * most for seconds in equal)
    for i in edge:
        assert slowed[i] >= rounds * FAR.latency
    # And through them everybody, some rounds later: each client's wait spreads to its neighbours.
    assert min(slowed) >= (rounds - N) * (FAR.latency - 0.01 * STEPS / rounds)
