"""Exchanges of everybody through one medium that all messages share, against what can be worked out."""

from __future__ import annotations

from typing import Any

import pytest

import swiftfl
from swiftfl.algorithms import Gossip, dsgd
from swiftfl.costs import Costs
from swiftfl.engines import VirtualEngine
from swiftfl.errors import UserError
from swiftfl.graph import Topology
from swiftfl.graph.registry import topology
from worlds import quadratic_setup, run_to_end, slow

COMPUTE, LATENCY, SIZE, RATE, EPOCHS, STEPS = 0.01, 0.0003, 1_000_000, 4e9, 2, 5
CLIQUES = topology("ring_of_cliques", 10, clusters=3)


def costs(**more: Any) -> Costs:
    given: dict[str, Any] = {
        "compute": COMPUTE, "send": 0.0002, "mix": 0.0001, "latency": LATENCY, "bandwidth": RATE,
        "message_bytes": SIZE, "shared_bandwidth": RATE,
    }  # fmt: skip
    return Costs(**given | more)


def ended(graph: Topology, algorithm: Any = None, barrier: str = "global", **more: Any) -> VirtualEngine:
    setup, _, _ = quadratic_setup(
        algorithm or dsgd(), graph, epochs=EPOCHS, steps_per_epoch=STEPS, costs=costs(**more), barrier=barrier
    )
    return run_to_end(VirtualEngine(setup))


@pytest.mark.parametrize("graph", [swiftfl.ring(2), swiftfl.ring(4), swiftfl.ring(16), CLIQUES])
def test_an_exchange_takes_as_long_as_all_its_bytes(graph: Topology) -> None:
    """Two messages per edge; sending and averaging are part of it, whatever a client's degree."""
    engine = ended(graph)
    exchange = LATENCY + 2 * graph.m * SIZE / RATE
    steps = EPOCHS * STEPS
    assert engine.seconds()["communication"] == pytest.approx([steps * exchange] * graph.n)
    assert engine.seconds()["waiting"] == pytest.approx([0.0] * graph.n, abs=1e-9)
    assert engine.seconds()["compute"] == pytest.approx([steps * COMPUTE] * graph.n)


def test_who_waits_for_a_slow_client_does_not_communicate_meanwhile() -> None:
    engine = ended(swiftfl.ring(6), slowdowns=slow({2: 3.0}))
    exchange, steps = LATENCY + 12 * SIZE / RATE, EPOCHS * STEPS
    seconds = engine.seconds()
    assert seconds["communication"] == pytest.approx([steps * exchange] * 6)
    expected = [0.0 if i == 2 else steps * 2 * COMPUTE for i in range(6)]
    assert seconds["waiting"] == pytest.approx(expected, abs=1e-9)


def test_a_link_that_is_slower_than_the_medium_still_counts() -> None:
    link = swiftfl.costs.Link(latency=0.5, bandwidth=1e12)
    engine = ended(swiftfl.ring(6), links={(0, 1): link})
    assert engine.now == pytest.approx(EPOCHS * STEPS * (COMPUTE + 0.5), rel=0.01)


def test_only_messages_that_are_sent_count() -> None:
    """In a maximal matching of four clients in a ring, two pairs meet: four messages, not eight."""
    graph = swiftfl.ring(4)
    engine = ended(graph, Gossip(graph))
    exchange = LATENCY + 4 * SIZE / RATE
    assert engine.seconds()["communication"] == pytest.approx([EPOCHS * STEPS * exchange] * 4)


def test_neighbours_that_meet_by_themselves_share_nothing() -> None:
    """Without a barrier over everybody there is no common exchange: times are as without a medium."""
    graph = swiftfl.ring(6)
    shared, alone = (
        ended(graph, barrier="neighbours"),
        ended(graph, barrier="neighbours", shared_bandwidth=None),
    )
    assert shared.seconds() == alone.seconds()
    own = 2 * (0.0002 + 0.0001) + LATENCY + SIZE / RATE
    assert alone.seconds()["communication"] == pytest.approx([EPOCHS * STEPS * own] * 6)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_a_rate_must_be_positive(value: float) -> None:
    with pytest.raises(UserError, match="shared_bandwidth must be positive"):
        Costs(shared_bandwidth=value)
