"""Virtual time against formulas, and mailboxes against a simulator that delivers every message."""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import swiftfl
from swiftfl.algorithms import Swift, dsgd
from swiftfl.costs import Costs, Link
from swiftfl.engines import VirtualEngine
from swiftfl.sample import Batch
from worlds import STEP_SIZE, clocks, quadratic_setup, run_to_end, slow, steps

NOTHING = np.empty(0, dtype=np.int64)
COSTS = Costs(compute=0.010, send=0.001, mix=0.0005, latency=0.002, bandwidth=1e6)
DIMENSION = 7
TRANSIT = 0.002 + DIMENSION * 8 / 1e6


def test_swift_never_waits_and_pays_only_its_own_time() -> None:
    setup, _, _ = quadratic_setup(Swift(), epochs=4, costs=COSTS, dimension=DIMENSION)
    engine = run_to_end(VirtualEngine(setup))
    times = engine.seconds()
    steps = 20
    assert times["waiting"] == [0.0] * 6
    np.testing.assert_allclose(times["compute"], steps * 0.010)
    np.testing.assert_allclose(times["communication"], steps * 2 * (0.001 + 0.0005))


def test_dsgd_pays_the_journey_of_the_models() -> None:
    setup, _, _ = quadratic_setup(dsgd(), epochs=4, costs=COSTS, dimension=DIMENSION)
    engine = run_to_end(VirtualEngine(setup))
    times = engine.seconds()
    np.testing.assert_allclose(times["waiting"], 0.0, atol=1e-15)
    np.testing.assert_allclose(times["communication"], 20 * (2 * (0.001 + 0.0005) + TRANSIT))


@pytest.mark.parametrize("links", [{}, {(0, 1): Link(0.002, 1e6)}])
def test_messages_may_have_another_size_than_the_model(links: dict[tuple[int, int], Link]) -> None:
    """A million bytes take a second and the latency; five steps of ten milliseconds never see one."""
    costs = replace(COSTS, message_bytes=1_000_000, links=links)
    setup, _, _ = quadratic_setup(dsgd(), epochs=4, costs=costs, dimension=DIMENSION)
    communication = run_to_end(VirtualEngine(setup)).seconds()["communication"]
    np.testing.assert_allclose(communication, 20 * (2 * (0.001 + 0.0005) + 1.002))
    setup, _, _ = quadratic_setup(Swift(), epochs=1, costs=costs, dimension=DIMENSION)
    engine = VirtualEngine(setup)
    engine.start()
    engine.advance(10**9)
    first = engine.setup.workload.initial(setup.seed)
    assert engine.now < 1.002
    assert (engine.world.mailboxes.fetch(0, [1], engine.now)[1] == first).all()
    last = engine.world.mailboxes.fetch(0, [1], engine.now + 2)[1]
    assert (last == engine.models[1]).all()


@pytest.mark.parametrize("barrier", ["neighbours", "global"])
def test_a_slow_client_holds_up_those_who_wait_for_it(barrier: str) -> None:
    """Through a ring the delay reaches clients at distance h in round h; a barrier is at once.

    Models travel while the slow client still computes, so it pays no journey itself: its rounds take
    30 ms longer than a plain one without the journey, and that is what the others wait.
    """
    costs = replace(COSTS, slowdowns=slow({0: 4.0}))
    n, rounds = 8, 20
    setup, _, _ = quadratic_setup(
        dsgd(), swiftfl.ring(n), epochs=4, costs=costs, dimension=DIMENSION, barrier=barrier
    )
    engine = run_to_end(VirtualEngine(setup))
    times = engine.seconds()
    assert times["waiting"][0] == pytest.approx(0.0)
    assert clocks(engine)[0] == pytest.approx(rounds * (0.040 + 2 * 0.0015))
    for i in range(1, n):
        distance = min(i, n - i)
        first = 1 if barrier == "global" else distance
        journey = 0.0 if barrier == "global" and distance > 1 else TRANSIT
        assert times["waiting"][i] == pytest.approx(0.030 + (rounds - first) * (0.030 - journey))


def test_times_add_up_to_the_clock() -> None:
    setup, _, _ = quadratic_setup(dsgd(), epochs=4, costs=Costs(slowdowns=slow({2: 3.0})))
    engine = run_to_end(VirtualEngine(setup))
    times = engine.seconds()
    total = np.add(np.add(times["compute"], times["communication"]), times["waiting"])
    np.testing.assert_allclose(total, clocks(engine), rtol=1e-12)


def swift_with_delivery_events(setup: Any, coefficients: Any, workload: Any, steps: int) -> np.ndarray:
    """SWIFT C_0 in virtual time, with one event per delivered message and a mailbox per edge."""
    costs, n = setup.costs, coefficients.topology.n
    neighbours = [coefficients.topology.neighbours(i) for i in range(n)]
    columns = [coefficients.column(i) for i in range(n)]
    x0 = workload.initial(setup.seed)
    x, c = [x0] * n, [1] * n
    mailbox = [{int(k): x0 for k in neighbours[i]} for i in range(n)]
    transit = costs.transit(0, 1, x0.nbytes)
    # Deliveries come before whatever else happens at the same time; the engine's order decides ties.
    events: list[tuple[float, int, int, str, Any]] = []
    order = 0

    def begin(i: int, time: float) -> None:
        nonlocal order
        if c[i] <= steps:  # the last model is left behind, after the client's own time
            time += costs.send * len(neighbours[i])
        for k in neighbours[i]:
            heapq.heappush(events, (time + transit, 0, order := order + 1, "deliver", (int(k), i, x[i])))
        if c[i] <= steps:
            heapq.heappush(events, (time + costs.gradient(i, c[i], time), 1, order := order + 1, "step", i))

    for i in range(n):
        begin(i, 0.0)
    while events:
        time, _, _, kind, what = heapq.heappop(events)
        if kind == "deliver":
            to, sender, model = what
            mailbox[to][sender] = model
            continue
        i = what
        g = workload.gradient(x[i], Batch(i, c[i], NOTHING)).g
        half = columns[i][i] * x[i] + sum(columns[i][k] * mailbox[i][k] for k in mailbox[i])
        x[i] = half - STEP_SIZE * g
        c[i] += 1
        begin(i, time + costs.mix * len(neighbours[i]))
    return np.stack(x)


@settings(max_examples=25, deadline=None)
@given(
    latency=st.floats(0.0005, 0.2),
    factor=st.floats(0.3, 9.0),
    graph=st.sampled_from([swiftfl.ring(6), swiftfl.star(5), swiftfl.grid(2, 3)]),
)
def test_a_fetch_sees_what_has_been_delivered(latency: float, factor: float, graph: Any) -> None:
    slowdown = {i: 1.0 + 0.0137 * i for i in range(graph.n)} | {2: factor}
    costs = Costs(latency=latency, slowdowns=slow(slowdown))
    setup, coefficients, workload = quadratic_setup(Swift(), graph, epochs=6, costs=costs)
    expected = swift_with_delivery_events(setup, coefficients, workload, steps=30)
    engine = run_to_end(VirtualEngine(setup))
    np.testing.assert_allclose(np.stack(engine.models), expected, rtol=0, atol=1e-12)


def test_mailboxes_hold_only_what_can_still_be_seen() -> None:
    """A neighbour that is very slow, or a long way off, does not make the memory grow."""
    setup, _, _ = quadratic_setup(Swift(), iterations=3000, costs=Costs(slowdowns=slow({0: 500.0})))
    engine = run_to_end(VirtualEngine(setup))
    assert len(list(engine.world.mailboxes.models())) <= 3 * engine.n


def test_a_finished_client_leaves_its_last_model() -> None:
    """Client 1 has one step per epoch, the others many: they keep averaging with its final model."""
    from swiftfl.data.batches import NoSamples

    for algorithm in (Swift(), dsgd()):
        setup, _, _ = quadratic_setup(algorithm, epochs=2, noise=0.0)
        object.__setattr__(setup, "batches", [NoSamples(i, 1 if i == 1 else 9) for i in range(6)])
        engine = VirtualEngine(setup)
        engine.start()
        while not engine.world.records[1].finished:
            engine.advance(1)
        final = engine.models[1].copy()
        engine.advance(10**9)
        assert steps(engine) == [18, 2, 18, 18, 18, 18]
        assert (engine.models[1] == final).all()
        assert (engine.world.mailboxes.fetch(0, [1], engine.now + 1)[1] == final).all()


def test_momentum_free_quadratics_reach_the_weighted_optimum() -> None:
    """With p uniform and a decaying step size the consensus model approaches the minimiser."""
    from swiftfl.schedule import decay_every

    setup, _, workload = quadratic_setup(Swift(), noise=0.0, epochs=400)
    object.__setattr__(setup, "step_size", decay_every(0.2, 0.8, 10, 10))
    engine = run_to_end(VirtualEngine(setup))
    centre = np.mean(engine.models, axis=0)
    assert np.linalg.norm(centre - workload.minimiser) < 0.02
