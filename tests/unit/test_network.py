"""A network that changes: each change against what follows from it by hand, and all of them at random."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import swiftfl
from makers import MAKERS
from swiftfl.algorithm import relies_on_the_start
from swiftfl.algorithms import AdPsgd, Swift, dsgd
from swiftfl.client import State
from swiftfl.costs import Costs
from swiftfl.engines import VirtualEngine
from swiftfl.engines.dynamics import CHANGES, Change, Dynamics, Rates
from swiftfl.engines.membership import Membership
from swiftfl.engines.simulation.churn import Churn
from swiftfl.engines.simulation.world import World
from swiftfl.errors import UserError
from swiftfl.experiment.build import build
from swiftfl.experiment.config import Config
from swiftfl.experiment.recipes import recipe
from swiftfl.experiment.run import resume, run
from swiftfl.graph import Topology, communication_coefficients
from swiftfl.graph.coefficients import promised
from swiftfl.rules import SgdRule
from swiftfl.vector import Weights
from swiftfl.workload.quadratic import Free
from worlds import asleep, clocks, finished, quadratic_setup, resumed, run_to_end, slow, steps

PLAIN = Costs(compute=0.01, send=0.0, mix=0.0, latency=0.001, bandwidth=1e12)
EXAMPLES = Path(__file__).parents[2] / "examples"
RING = swiftfl.ring(6)
CLIQUES = swiftfl.ring_of_cliques(8, clusters=2)


def setup_of(
    algorithm: Any,
    graph: Topology,
    changes: Sequence[Change] = (),
    rates: Rates = Rates(),
    method: str = "ccs",
    **options: Any,
) -> Any:
    """A setup of quadratics whose network changes; options of `Dynamics` are told by their names."""
    own = {k: options.pop(k) for k in list(options) if k in Dynamics.__dataclass_fields__}
    dynamics = Dynamics(tuple(changes), rates, **own)
    p = communication_coefficients(graph, None, method).influence.tolist()
    options.setdefault("costs", PLAIN)
    return quadratic_setup(
        algorithm, graph, method=method, network=lambda: Membership(graph, p, method, dynamics, 5), **options
    )[0]


class CheckedChurn(Churn):
    """Checks every renewal by itself: conditions (a)-(d) on the weights that clients will use."""

    checks = 0

    def renew(self, change: Change) -> bool:
        done = super().renew(change)
        membership = self.membership
        weights = {i: newest_weights(self.world, i) for i in membership.known}
        assert_conditions(weights, membership.influence, membership.up)
        self.checks += 1
        return done


class Checked(VirtualEngine):
    def __init__(self, setup: Any) -> None:
        super().__init__(setup)
        if self.churn is not None:
            self.churn = CheckedChurn(self.world, self.runner, self.churn.membership)


def newest_weights(world: World, i: int) -> Weights:
    """Those that wait for client i, or those that it has."""
    record = world.records[i]
    return record.next_terms[-1].w if record.next_terms else record.client.w


def membership_of(engine: VirtualEngine) -> Membership:
    assert engine.churn is not None
    return engine.churn.membership


def checks(engine: VirtualEngine) -> int:
    assert isinstance(engine.churn, CheckedChurn)
    return engine.churn.checks


def weights_of(engine: VirtualEngine, i: int) -> Weights:
    return engine.world.records[i].client.w


def assert_conditions(weights: dict[int, Weights], p: np.ndarray, up: set[tuple[int, int]]) -> None:
    """(a)-(d), written anew: nothing of the package's own check is used."""
    members = component_of(weights, up)
    for i, w in weights.items():
        there = {k for edge in up if i in edge for k in edge if k != i and k in weights}
        assert set(w.of) == there
        assert w.own + sum(w.of.values()) == pytest.approx(1.0, abs=1e-9)  # (a)
        assert w.own >= 1.0 / len(members[i]) - 1e-9  # (b)
        for k, value in w.of.items():
            assert value > 0  # (c)
            assert p[i] * value == pytest.approx(p[k] * weights[k].of[i], rel=1e-9)  # (d)


def component_of(weights: dict[int, Weights], up: set[tuple[int, int]]) -> dict[int, set[int]]:
    found = {i: {i} for i in weights}
    for i, j in up:
        if i in found and j in found and found[i] is not found[j]:
            found[i] |= found[j]
            for k in found[j]:
                found[k] = found[i]
    return found


def until(engine: VirtualEngine, time: float) -> VirtualEngine:
    """Carry out everything up to a time (and start, if need be)."""
    if engine.world.records[-1].generator is engine.world.records[0].generator is None:
        engine.start()
    assert engine.churn is not None
    heap = engine.world.events.heap
    while heap and heap.first()[0] <= time:
        engine.churn.next_event()
    return engine


def events(engine: VirtualEngine, kind: str) -> list[dict[str, Any]]:
    return [row for row in engine.world.log.rows if row["event"] == kind]


# --- one change at a time, by hand -------------------------------------------------------------


def mixed_by_hand(
    engine: VirtualEngine, i: int, before: np.ndarray, inbox: dict[int, np.ndarray]
) -> np.ndarray:
    w = weights_of(engine, i)
    own = w.own + sum(value for k, value in w.of.items() if k not in inbox)
    return own * before + sum(w.of[k] * x for k, x in inbox.items())


def test_a_crash_step_by_step() -> None:
    """Last model until noticed, then weight to self, then CCS on the path that is left of a ring."""
    setup = setup_of(
        Swift(), swiftfl.ring(4), [Change(0.035, "crash", 2)], notice=0.04, renewal=0.03, iterations=10**6
    )
    object.__setattr__(setup, "workload", Free(3, np.float64))
    engine = Checked(setup)
    engine.start()
    for i in range(4):  # distinct models, to see who is averaged
        engine.world.records[i].model = np.full(3, 10.0**i)
    until(engine, 0.0301)
    ring = {1: {0: 1 / 3, 2: 1 / 3}, 3: {0: 1 / 3, 2: 1 / 3}}
    for i, of in ring.items():
        assert dict(weights_of(engine, i).of) == pytest.approx(of)
    until(engine, 0.061)
    assert not engine.world.records[2].present
    assert 2 in membership_of(engine).known
    inbox = engine.world.mailboxes.fetch(1, (0, 2), 0.07)
    assert (inbox[2] == engine.models[2]).all()  # nobody knows: its last model counts
    until(engine, 0.0751)  # noticed at 0.075
    assert 2 not in membership_of(engine).known
    inbox = engine.world.mailboxes.fetch(1, (0, 2), 0.08)
    assert set(inbox) == {0}
    assert dict(weights_of(engine, 1).of) == pytest.approx({0: 1 / 3, 2: 1 / 3})  # not renewed yet
    until(engine, 0.1199)  # renewed at 0.105, taken at the next step
    path = communication_coefficients(swiftfl.path(3))  # 1 - 0 - 3
    assert weights_of(engine, 0).of == pytest.approx({1: path.column(1)[0], 3: path.column(1)[2]})
    assert weights_of(engine, 1).of == pytest.approx({0: path.column(0)[1]})
    assert weights_of(engine, 3).of == pytest.approx({0: path.column(2)[1]})
    assert checks(engine) == 1
    assert [(row["event"], row["time"]) for row in engine.world.log.rows] == [
        ("crash", 0.035),
        ("notice", pytest.approx(0.075)),
        ("renew", pytest.approx(0.105)),
    ]


def test_the_weight_of_a_lost_neighbour_goes_to_self() -> None:
    """The models after the first step that follows the notice, bit for bit by hand."""
    setup = setup_of(
        Swift(), swiftfl.ring(4), [Change(0.015, "crash", 2)], notice=0.0, renewal=1.0, noise=0.0
    )
    object.__setattr__(setup, "workload", Free(3, np.float64))
    engine = VirtualEngine(setup)
    engine.start()
    for i, record in enumerate(engine.world.records):
        record.model = np.full(3, 10.0**i)
        record.start = State(record.model)
        engine.world.gradients.forget(i)
    for record in engine.world.records:
        engine.runner.start_client(record)
    until(engine, 0.0101)  # the first step is over: everybody has averaged with both
    first = [x.copy() for x in engine.models]
    np.testing.assert_allclose(
        first[1], mixed_by_hand(engine, 1, np.full(3, 10.0), {0: np.ones(3), 2: np.full(3, 100.0)})
    )
    until(engine, 0.0201)
    np.testing.assert_allclose(engine.models[1], mixed_by_hand(engine, 1, first[1], {0: first[0]}))
    np.testing.assert_allclose(engine.models[2], first[2])


def test_leaving_is_known_at_once() -> None:
    setup = setup_of(Swift(), swiftfl.ring(4), [Change(0.035, "leave", 2)], renewal=0.02, iterations=200)
    engine = Checked(setup)
    until(engine, 0.035)
    assert 2 not in membership_of(engine).known
    assert set(engine.world.mailboxes.fetch(1, (0, 2), 0.036)) == {0}
    until(engine, 0.08)
    assert dict(weights_of(engine, 1).of).keys() == {0}
    assert not events(engine, "notice")


def test_a_join_starts_from_the_newest_model_of_a_neighbour() -> None:
    setup = setup_of(Swift(), swiftfl.ring(4), [Change(0.055, "join", 2)], renewal=0.02, iterations=200)
    engine = Checked(setup)
    until(engine, 0.054)
    assert engine.members() == [0, 1, 3]
    assert steps(engine) == [5, 5, 0, 5]
    assert dict(weights_of(engine, 1).of).keys() == {0}  # the absent one has no weight
    source = engine.models[1].copy()
    until(engine, 0.055)
    assert events(engine, "join")[0]["model_of"] == 1
    assert (engine.models[2] == source).all()
    assert weights_of(engine, 2) == Weights(1.0, {})  # alone until the renewal
    until(engine, 0.1)
    assert dict(weights_of(engine, 2).of).keys() == dict(weights_of(engine, 0).of).keys() == {1, 3}


@pytest.mark.parametrize("algorithm", [dsgd(), AdPsgd()])
def test_who_comes_back_starts_from_what_others_have_in_every_algorithm(algorithm: Any) -> None:
    """Not from x0, which is all that was ever published by those who publish nothing."""
    changes = [Change(0.3, "crash", 2), Change(0.9051, "return", 2)]
    engine = Checked(setup_of(algorithm, swiftfl.ring(4), changes, method="metropolis", iterations=10**6))
    until(engine, 0.9051)
    source: Any = events(engine, "return")[0]["model_of"]
    assert source in (1, 3)
    assert (engine.models[2] == engine.models[source]).all()
    assert (engine.models[2] != engine.setup.workload.initial(0)).any()


def test_a_new_edge_has_weight_with_self_until_its_first_model_arrives() -> None:
    costs = Costs(compute=0.01, send=0.0, mix=0.0, latency=0.03, bandwidth=1e12)
    setup = setup_of(
        Swift(),
        swiftfl.ring(6),
        [Change(0.105, "edge_up", edge=(0, 3))],
        renewal=0.0,
        costs=costs,
        iterations=900,
    )
    engine = Checked(setup)
    until(engine, 0.111)
    assert 3 in weights_of(engine, 0).of
    assert 3 not in engine.world.mailboxes.fetch(0, (1, 3, 5), 0.139)  # sent at 0.11, 0.03 on the way
    assert 3 in engine.world.mailboxes.fetch(0, (1, 3, 5), 0.1401)


def test_an_edge_that_vanishes_carries_nothing_at_once() -> None:
    for name in ("swift", "dsgd", "adpsgd", "gossip"):
        graph = swiftfl.path(2)
        setup = setup_of(
            MAKERS[name](graph, SgdRule()),
            graph,
            [Change(0.1, "edge_down", edge=(1, 0))],
            renewal=10.0,
            epochs=40,
            noise=0.0,
        )
        engine = run_to_end(VirtualEngine(setup))
        apart = np.linalg.norm(engine.models[0] - engine.models[1])
        own = [np.linalg.norm(engine.models[i] - setup.workload.b[i]) for i in range(2)]
        assert max(own) < 0.02 < apart, name  # each ends at its own optimum


def test_the_graph_splits_into_components() -> None:
    changes = [Change(0.1, "edge_down", edge=(0, 1)), Change(0.1, "edge_down", edge=(3, 4))]
    engine = Checked(setup_of(Swift(), swiftfl.ring(6), changes, renewal=0.01, iterations=10**6))
    until(engine, 0.2)
    assert events(engine, "renew")[-1]["components"] == 2
    assert sorted(membership_of(engine).components()) == [[0, 4, 5], [1, 2, 3]]
    assert checks(engine) == 2


def test_sleep_delays_and_is_accounted_apart() -> None:
    setup = setup_of(Swift(), swiftfl.ring(4), [Change(0.034, "sleep", 1, seconds=0.5)], epochs=4)
    engine = until(VirtualEngine(setup), 0.4)
    assert max(clocks(engine)) < 0.41  # nobody's clock runs ahead of what has happened
    engine.advance(10**9)
    assert asleep(engine) == [0.0, 0.5, 0.0, 0.0]
    assert clocks(engine)[1] == pytest.approx(0.7)
    assert engine.seconds()["compute"] == pytest.approx([0.2] * 4)


def test_who_waits_for_a_sleeper_waits() -> None:
    """D-SGD, two clients: one sleeps 0.5 s in its gradient, the other waits for it that long."""
    costs = replace(PLAIN, latency=0.0)
    setup = setup_of(dsgd(), swiftfl.path(2), [Change(0.005, "sleep", 1, seconds=0.5)], epochs=4, costs=costs)
    engine = run_to_end(VirtualEngine(setup))
    assert asleep(engine) == [0.0, 0.5]
    assert engine.seconds()["waiting"] == pytest.approx([0.5, 0.0], abs=1e-6)


def test_a_client_that_waits_can_fall_asleep() -> None:
    """Client 1 sleeps while it waits for the slow client 0: it oversleeps, and then 0 waits for it."""
    costs = Costs(compute=0.01, send=0.0, mix=0.0, latency=0.0, bandwidth=1e12, slowdowns=slow({0: 10.0}))
    setup = setup_of(dsgd(), swiftfl.path(2), [Change(0.05, "sleep", 1, seconds=0.3)], epochs=4, costs=costs)
    engine = run_to_end(VirtualEngine(setup))
    times = engine.seconds()
    assert asleep(engine) == [0.0, 0.3]
    assert times["waiting"][0] == pytest.approx(0.3 + 0.01 - 0.1)
    np.testing.assert_allclose(
        np.add(np.add(times["compute"], times["waiting"]), asleep(engine)), clocks(engine)
    )


def test_a_synchronous_crash_is_waited_for_until_it_is_noticed() -> None:
    """D-SGD on a ring of 4: both neighbours are held up until 0.035 + 0.2, and then go on without."""
    setup = setup_of(
        dsgd(),
        swiftfl.ring(4),
        [Change(0.035, "crash", 2)],
        notice=0.2,
        method="metropolis",
        epochs=4,
        costs=replace(PLAIN, latency=0.0),
    )
    engine = run_to_end(Checked(setup))
    assert finished(engine) == [True, True, False, True]
    # The gradients of round 4 are there at 0.04. Client 0 meets its neighbours then, and waits in round 5.
    for i in (0, 1, 3):
        assert engine.seconds()["waiting"][i] == pytest.approx(0.235 - 0.04, abs=1e-6)


@pytest.mark.parametrize("name", ["allreduce", "fedavg"])
def test_a_reduction_waits_until_the_loss_is_noticed(name: str) -> None:
    graph = swiftfl.ring(4)
    setup = setup_of(
        MAKERS[name](graph, SgdRule()),
        graph,
        [Change(0.005, "crash", 2)],
        notice=0.5,
        method="metropolis",
        epochs=4,
    )
    engine = run_to_end(Checked(setup))
    assert finished(engine) == [True, True, False, True]
    assert min(engine.seconds()["waiting"][i] for i in (0, 1, 3)) > 0.4


# --- awkward orders ----------------------------------------------------------------------------

CHANGEABLE = [name for name in MAKERS if not relies_on_the_start(MAKERS[name](CLIQUES, SgdRule(0.5)))]
every_algorithm = pytest.mark.parametrize("name", CHANGEABLE)
AWKWARD: dict[str, list[Change]] = {
    "all but one crash": [Change(0.05, "crash", i) for i in range(1, 8)],
    "all crash and one returns": [*(Change(0.05, "crash", i) for i in range(8)), Change(0.6, "return", 3)],
    "all crash and two return, far apart": [
        *(Change(0.05 + 0.01 * i, "crash", i) for i in range(8)),
        Change(0.6, "return", 3),
        Change(0.7, "return", 4),
    ],
    "a newcomer, then one who was far ahead": [
        Change(0.2, "join", 5),
        *(Change(0.15, "crash", i) for i in range(8) if i != 5),
        Change(0.21, "return", 4),
    ],
    "the same client crashes twice": [Change(0.05, "crash", 2), Change(0.06, "crash", 2)],
    "back before it is noticed, and gone again": [
        Change(0.05, "crash", 2),
        Change(0.07, "return", 2),
        Change(0.09, "crash", 2),
    ],
    "back before it is noticed": [Change(0.05, "crash", 2), Change(0.07, "return", 2)],
    "edges of those who are not there": [
        Change(0.05, "crash", 2),
        Change(0.06, "edge_down", edge=(2, 3)),
        Change(0.3, "edge_up", edge=(2, 6)),
        Change(0.4, "return", 2),
    ],
    "all at one time": [
        Change(0.05, "crash", 2),
        Change(0.05, "return", 2),
        Change(0.05, "sleep", 1, seconds=0.1),
        Change(0.05, "leave", 4),
        Change(0.05, "edge_up", edge=(0, 6)),
        Change(0.05, "edge_down", edge=(0, 6)),
        Change(0.05, "join", 4),
    ],
    "nobody is there at the start": [Change(0.1 + 0.05 * i, "join", i) for i in range(8)],
    "asleep when it crashes": [
        Change(0.05, "sleep", 2, seconds=0.5),
        Change(0.1, "crash", 2),
        Change(0.2, "return", 2),
    ],
}


def assert_ended_well(engine: VirtualEngine) -> None:
    """Everybody who is there has finished, and every second is accounted for."""
    assert engine.over
    for i in engine.members():
        assert engine.world.records[i].finished, f"client {i} never finished"
        assert np.isfinite(engine.models[i]).all()
    parts = np.array([*engine.seconds().values(), asleep(engine)])
    assert (parts > -1e-9).all()
    np.testing.assert_allclose(parts.sum(axis=0), clocks(engine), rtol=1e-9, atol=1e-12)


@every_algorithm
@pytest.mark.parametrize("case", AWKWARD)
@pytest.mark.parametrize("barrier", ["neighbours", "global"])
def test_awkward_orders(name: str, case: str, barrier: str) -> None:
    costs = Costs(compute=0.01, latency=0.003, slowdowns=slow({1: 3.0, 4: 0.6}))
    engine = Checked(
        setup_of(
            MAKERS[name](CLIQUES, SgdRule(momentum=0.8)),
            CLIQUES,
            AWKWARD[case],
            method="ccs" if name.startswith("swift") else "metropolis",
            barrier=barrier,
            epochs=6,
            costs=costs,
        )
    )
    assert_ended_well(run_to_end(engine))
    expected = {"all but one crash": 1, "all crash and one returns": 1, "nobody is there at the start": 8}
    if case in expected:
        assert len(engine.members()) == expected[case]


def test_a_second_crash_is_noticed_in_its_own_time() -> None:
    engine = run_to_end(
        VirtualEngine(
            setup_of(Swift(), CLIQUES, AWKWARD["back before it is noticed, and gone again"], epochs=6)
        )
    )
    assert [row["time"] for row in events(engine, "notice")] == [pytest.approx(0.19)]


def test_an_isolated_client_does_not_put_off_what_concerns_others() -> None:
    """A client without neighbours runs ahead; the others still switch at their own next round."""
    graph = swiftfl.ring(6)
    changes = [
        Change(0.1, "edge_down", edge=(0, 1)),
        Change(0.1, "edge_down", edge=(0, 5)),
        Change(1.5, "crash", 3),
    ]
    costs = Costs(compute=0.01, latency=0.05)
    engine = Checked(setup_of(dsgd(), graph, changes, method="metropolis", iterations=10**6, costs=costs))
    until(engine, 2.2)
    assert engine.world.records[0].start.c > engine.world.records[1].start.c + 50
    assert 3 not in weights_of(engine, 2).of


# --- at random ---------------------------------------------------------------------------------


@st.composite
def change(draw: Any, n: int) -> Change:
    kind = draw(st.sampled_from(["crash", "return", "leave", "join", "sleep", "edge_down", "edge_up"]))
    time = draw(st.sampled_from([0.0, 0.01, 0.05, 0.05]) | st.floats(0.0, 0.5))
    if kind.startswith("edge"):
        i = draw(st.integers(0, n - 1))
        return Change(time, kind, edge=(i, (i + draw(st.integers(1, n - 1))) % n))
    seconds = draw(st.sampled_from([0.01, 0.1])) if kind == "sleep" else 0.0
    return Change(time, kind, draw(st.integers(0, n - 1)), seconds=seconds)


some_rates = st.builds(
    Rates,
    crash=st.sampled_from([0.0, 1.0, 4.0]),
    come_back=st.sampled_from([0.0, 3.0, 20.0]),
    sleep=st.sampled_from([0.0, 5.0]),
    sleep_seconds=st.just(0.05),
    edge_down=st.sampled_from([0.0, 2.0]),
    edge_up=st.sampled_from([0.0, 10.0]),
)


@every_algorithm
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_whatever_happens(name: str, data: Any) -> None:
    """It ends, conditions hold after every renewal, and pausing anywhere changes nothing."""
    draw = data.draw
    graph = draw(st.sampled_from([CLIQUES, swiftfl.ring(6), swiftfl.star(5)]))
    ends = draw(st.sampled_from([{"epochs": 6}, {"iterations": 150}]))
    setup = setup_of(
        MAKERS[name](graph, SgdRule(momentum=0.8)),
        graph,
        draw(st.lists(change(graph.n), max_size=10)),
        draw(some_rates),
        method="ccs" if name.startswith("swift") else "metropolis",
        notice=draw(st.sampled_from([0.0, 0.03, 0.1])),
        renewal=draw(st.sampled_from([0.0, 0.02, 0.05])),
        measured=draw(st.booleans()),
        keep_objective=draw(st.booleans()),
        measure_every=draw(st.sampled_from([1, 5])),
        barrier=draw(st.sampled_from(["neighbours", "global"])),
        costs=Costs(
            compute=0.01,
            latency=0.003,
            slowdowns=slow({1: 3.0, 4: 0.6}),
            spread=draw(st.sampled_from([0.0, 0.3])),
            jitter=draw(st.sampled_from([0.0, 0.01])),
            loss=draw(st.sampled_from([0.0, 0.3])),
        ),
        **ends,
    )
    whole = run_to_end(Checked(setup))
    if "epochs" in ends:
        assert_ended_well(whole)
    elif whole.world.active:
        # Steps that ask for nothing, of a client that sits a round out, end together.
        assert 150 <= whole.iteration <= 150 + (4 if name == "fedavg, half" else 0)
    paused = VirtualEngine(setup)
    paused.start()
    paused.advance(draw(st.integers(0, max(1, whole.iteration))))
    going_on = resumed(paused, VirtualEngine(setup))
    going_on.advance(10**9)
    assert_same(whole, going_on)


def assert_same(a: VirtualEngine, b: VirtualEngine) -> None:
    assert a.iteration == b.iteration
    assert (clocks(a), a.seconds(), asleep(a)) == (clocks(b), b.seconds(), asleep(b))
    assert a.take_log() == b.take_log()
    assert membership_of(a).state() == membership_of(b).state()
    assert [weights_of(a, i) for i in range(a.n)] == [weights_of(b, i) for i in range(b.n)]
    assert all((x == y).all() for x, y in zip(a.models, b.models, strict=True))


def test_random_rates_are_the_given_rates() -> None:
    """Also after many returns: a change that a later draw has replaced does not happen as well."""
    rates = Rates(crash=0.5, come_back=5.0, sleep=1.0, sleep_seconds=0.01, edge_down=0.3, edge_up=3.0)
    costs = Costs(compute=0.5)
    engine = Checked(setup_of(Swift(), CLIQUES, rates=rates, iterations=10**6, costs=costs))
    until(engine, 100.0)
    up = 8 * 100 / (1 + 0.5 / 5.0)  # client-seconds in which somebody is there to crash or sleep
    edges = len(CLIQUES.edges) * 100 / (1 + 0.3 / 3.0)
    assert len(events(engine, "crash")) == pytest.approx(0.5 * up, rel=0.1)
    assert len(events(engine, "sleep")) == pytest.approx(1.0 * up, rel=0.1)
    assert len(events(engine, "edge_down")) == pytest.approx(0.3 * edges, rel=0.15)


def test_who_joined_may_crash_too() -> None:
    setup = setup_of(Swift(), CLIQUES, [Change(0.1, "join", 3)], Rates(crash=2.0), iterations=10**6)
    engine = until(VirtualEngine(setup), 20.0)
    assert 3 in {row["client"] for row in events(engine, "crash")}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Change(-1.0, "crash", 0), "time"),
        (Change(0.0, "crash", 6), "clients are 0 to 5"),
        (Change(0.0, "edge_up", edge=(1, 1)), "not an edge"),
        (Change(0.0, "edge_down"), "not an edge"),
        (Change(0.0, "sleep", 1), "positive seconds"),
        (Change(None, "crash", 1), "crash: give it either a time .* or an iteration"),
        (Change(0.5, "crash", 1, iteration=3), "crash: give it either a time .* or an iteration"),
        (Change(None, "crash", 1, iteration=0), "the iteration must be at least 1, not 0"),
    ],
)
def test_impossible_changes_are_refused(wrong: Change, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Dynamics((wrong,)).check(6)


def test_what_happens_first_to_a_client_must_be_known() -> None:
    mixed = (Change(0.5, "leave", 2), Change(None, "join", 2, iteration=9))
    with pytest.raises(UserError, match="client 2 has changes by time and by iteration"):
        Dynamics(mixed).check(6)


# --- changes after so many client steps --------------------------------------------------------


def test_a_change_by_iteration_is_the_change_at_the_time_of_that_step() -> None:
    """A run in which changes are given by iteration is the run in which they are given by their times."""
    kinds: list[tuple[Any, int, int, tuple[int, int] | None]] = [
        ("edge_down", 20, -1, (0, 1)),
        ("leave", 33, 4, None),
        ("edge_up", 61, -1, (0, 1)),
        ("join", 90, 4, None),
        ("crash", 120, 2, None),
    ]
    costs = replace(PLAIN, slowdowns=slow({1: 1.371, 2: 1.113, 3: 0.719, 4: 0.933, 5: 1.937}))
    delays = {"notice": 0.0131, "renewal": 0.0173}  # no two things happen at the same time
    by_iteration = [Change(None, kind, i, edge, iteration=t) for kind, t, i, edge in reversed(kinds)]
    counted = run_to_end(Checked(setup_of(Swift(), RING, by_iteration, epochs=12, costs=costs, **delays)))
    found = [row for row in counted.world.log.rows if row["event"] in {kind for kind, *_ in kinds}]
    assert [(row["event"], row["iteration"]) for row in found] == [(kind, t) for kind, t, *_ in kinds]
    by_time = [
        Change(row["time"] + 1e-9, kind, i, edge)
        for row, (kind, _, i, edge) in zip(found, kinds, strict=True)
    ]
    timed = run_to_end(Checked(setup_of(Swift(), RING, by_time, epochs=12, costs=costs, **delays)))
    assert [(row["event"], row["iteration"]) for row in counted.world.log.rows] == [
        (row["event"], row["iteration"]) for row in timed.world.log.rows
    ]
    assert checks(counted) == 5
    assert all((x == y).all() for x, y in zip(counted.models, timed.models, strict=True))


def test_a_pause_between_changes_by_iteration_changes_nothing() -> None:
    changes = [Change(None, "leave", 4, iteration=30), Change(None, "join", 4, iteration=70)]
    setup = setup_of(Swift(), RING, changes, epochs=12)
    current = VirtualEngine(setup)
    current.start()
    for pause in (29, 30, 31, 69, 70, 75):
        current.advance(pause - current.iteration)
        current = resumed(current, VirtualEngine(setup))
    current.advance(10**9)
    whole = run_to_end(VirtualEngine(setup))
    assert current.figures() == whole.figures()
    assert current.world.log.rows == whole.world.log.rows
    assert all((x == y).all() for x, y in zip(current.models, whole.models, strict=True))


# --- influence that is measured ----------------------------------------------------------------

TRUE = np.array([0.25, 1, 1, 1, 1, 1]) / 5.25
SLOW = Costs(compute=0.01, send=0.0, mix=0.0, slowdowns=slow({0: 4.0}))


def test_measured_influence_approaches_the_true_rates() -> None:
    """And CCS with it keeps the mean, at the rates at which clients really act; uniform CCS does not."""
    graph, true = RING, TRUE
    errors = {}
    for measured in (True, False):
        engine = Checked(
            setup_of(
                Swift(), graph, measured=measured, measure_every=40, costs=SLOW, iterations=6000, notice=0.2
            )
        )
        run_to_end(engine)
        if measured:
            np.testing.assert_allclose(membership_of(engine).influence, true, rtol=0.06)
        expected = np.eye(6)
        for i in range(6):
            w = newest_weights(engine.world, i)
            expected[i, i] += true[i] * (w.own - 1)
            for k, value in w.of.items():
                expected[k, i] += true[i] * value
        np.testing.assert_allclose(expected.sum(axis=0), 1.0)
        errors[measured] = np.abs(expected.sum(axis=1) - 1).max()
    assert errors[True] < 0.005
    assert errors[False] > 0.04


def test_objective_as_given_lets_slow_data_keep_their_weight() -> None:
    """Heterogeneous quadratics, no noise, decaying steps, one client four times as slow.

    With measured influence alone, the consensus model goes to the minimiser of the true rates (0.20 from
    that of the given objective); scaled steps bring it back (0.003). CCS with the given influence, run
    at other rates, keeps the objective too (0.004): the slow client's model moves rarely, but then the
    others average with it, and with symmetric weights the two cancel. What it loses is the mean, see above.

    The step size is one for all and decays with the run: one that decays with each client's own epochs
    decays later for a slow client, which is another weight on its data.
    """
    distance = {}
    for label, options in {
        "uniform CCS": {"measured": False},
        "measured": {"measured": True},
        "as_given": {"measured": True, "keep_objective": True},
    }.items():
        setup = setup_of(Swift(), RING, costs=SLOW, iterations=10**6, noise=0.0, steps_per_epoch=1, **options)
        step_size = [0.1]
        object.__setattr__(setup, "step_size", lambda epoch, now=step_size: now[0])
        engine = Checked(setup)
        engine.start()
        for _ in range(20):
            engine.advance(600)
            step_size[0] *= 0.8
        centre = np.mean(engine.models, axis=0)
        distance[label] = float(np.linalg.norm(centre - setup.workload.minimiser))
    by_rates = np.linalg.norm(minimiser_of(setup.workload, TRUE) - setup.workload.minimiser)
    assert distance["as_given"] < 0.01
    assert distance["uniform CCS"] < 0.01
    assert distance["measured"] == pytest.approx(by_rates, rel=0.1)
    assert distance["measured"] > 20 * distance["as_given"]


def minimiser_of(workload: Any, p: np.ndarray) -> np.ndarray:
    """Of sum_i p_i f_i, for diagonal quadratics."""
    out: np.ndarray = (p @ (workload.A * workload.b)) / (p @ workload.A)
    return out


def test_steps_are_scaled_among_those_who_are_there() -> None:
    """Half of the clients are lost: those who stay keep their step sizes; one that is back takes no leap."""
    graph = swiftfl.complete(6)
    changes = [*(Change(0.5, "crash", i) for i in (3, 4, 5)), Change(4.0, "return", 5)]
    engine = Checked(
        setup_of(
            Swift(), graph, changes, measured=True, keep_objective=True, measure_every=5, iterations=10**6
        )
    )
    until(engine, 3.9)
    assert [engine.world.records[i].terms.scale for i in range(3)] == pytest.approx([1.0] * 3, rel=0.2)
    until(engine, 4.2)
    assert engine.world.records[5].terms.scale == pytest.approx(1.0, rel=0.3)


# --- the show ----------------------------------------------------------------------------------


def test_a_fifth_of_64_clients_crash_and_half_of_them_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The documented command, for fewer epochs: it ends, it learns, and (a)-(d) hold at every renewal."""
    monkeypatch.setattr("swiftfl.experiment.build.VirtualEngine", Checked)
    schedule = json.loads((EXAMPLES / "network" / "crash.json").read_text())
    config = recipe("digits").with_changes(
        {
            "topology": {"name": "random_regular", "clients": 64, "options": {"degree": 4}},
            "engine.network": schedule,
            "evaluation.every_epochs": 20.0,
        }
    )
    result = run(config, tmp_path / "run")
    crashed = {c["client"] for c in schedule["changes"] if c["event"] == "crash"}
    back = {c["client"] for c in schedule["changes"] if c["event"] == "return"}
    assert (len(crashed), len(back)) == (13, 6)
    assert result.summary["lost"] == sorted(crashed - back)
    assert result.summary["renewals"] == 13 + 6
    assert result.curve[0]["accuracy"] < 0.3
    assert result.summary["accuracy"] > 0.9
    rows = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    kinds = [row["event"] for row in rows]
    assert (kinds.count("crash"), kinds.count("notice"), kinds.count("return")) == (13, 13, 6)
    assert all(row["checked"] == "abcd" for row in rows if row["event"] == "renew")
    assert rows[-1]["event"] == "end"


def test_a_resumed_run_has_the_same_events(tmp_path: Path) -> None:
    """Those after the checkpoint happen again, and are recorded once."""
    config = recipe("digits").with_changes(
        {
            "engine.epochs": 4,
            "evaluation.every_epochs": 1.0,
            "engine.network": {
                "crash_rate": 1.0,
                "return_rate": 10.0,
                "edge_down_rate": 0.5,
                "edge_up_rate": 5.0,
            },
        }
    )
    whole = run(config, tmp_path / "whole")

    class Enough(Exception):  # noqa: N818
        pass

    def stop(done: int, total: int, last: Any) -> None:
        if done > 0.7 * total:
            raise Enough

    with pytest.raises(Enough):
        run(config, tmp_path / "resumed", stop, checkpoint_every=0.0)
    # The last checkpoint is older than the last events, as if the machine had died.
    resumed = resume(tmp_path / "resumed")
    assert resumed.summary == whole.summary

    def changes(folder: str) -> list[dict[str, Any]]:
        rows = [json.loads(line) for line in (tmp_path / folder / "events.jsonl").read_text().splitlines()]
        return [row for row in rows if row["event"] in CHANGES]

    assert len(changes("whole")) > 20
    assert changes("resumed") == changes("whole")


def test_the_files_of_the_documentation_work() -> None:
    page = (EXAMPLES.parent / "docs" / "network.md").read_text(encoding="utf-8")
    network, costs = (json.loads(block) for block in re.findall(r"```json\n(.*?)```", page, re.S))
    config = recipe("digits").with_changes(
        {
            "engine.network": network,
            "engine.costs": costs,
            "engine.epochs": 12,
            "evaluation.every_epochs": 12.0,
        }
    )
    result = run(config)
    assert result.summary["renewals"] > 5


def test_weights_that_are_uniform_in_neighbourhoods_stay_so() -> None:
    """Client 3 of a star leaves: the centre then takes thirds. (d) is not asked for."""
    graph, p = swiftfl.star(4), [0.25] * 4
    dynamics = Dynamics(changes=(Change(0.05, "leave", 3),))
    setup, _, _ = quadratic_setup(
        dsgd(),
        graph,
        method="uniform",
        epochs=20,
        network=lambda: Membership(graph, p, "uniform", dynamics, 0),
    )
    engine = run_to_end(VirtualEngine(setup))
    assert dict(engine.world.records[0].terms.w.of) == pytest.approx({1: 1 / 3, 2: 1 / 3})
    assert [row["checked"] for row in engine.take_log() if row["event"] == "renew"] == ["abc"]
    assert promised("metropolis") == "abcd"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([Change(1.0, "edge_down", edge=(0, 2))], r"edge_down of edge \[0, 2\]: it is not there by then"),
        ([Change(1.0, "edge_up", edge=(1, 0))], r"edge_up of edge \[0, 1\]: it is up already by then"),
        ([Change(1.0, "leave", 1), Change(2.0, "leave", 1)], "leave of client 1: it is not there by then"),
        ([Change(1.0, "join", 1), Change(2.0, "join", 1)], "join of client 1: it is there already by then"),
        ([Change(1.0, "return", 2)], "return of client 2: it is there already by then"),
        (
            [Change(2.0, "edge_down", edge=(0, 1)), Change(None, "edge_up", edge=(1, 0), iteration=9)],
            r"edge \[0, 1\] has changes by time and by iteration",
        ),
        ([Change(1.0, "leave")], "leave needs a client"),
    ],
)
def test_planned_changes_that_change_nothing_are_refused(changes: list[Change], message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_plan(changes)


def test_planned_changes_in_turn_are_accepted() -> None:
    check_plan(
        [
            Change(3.0, "edge_up", edge=(0, 1)),
            Change(1.0, "edge_down", edge=(1, 0)),
            Change(2.0, "join", 3),
            Change(4.0, "leave", 3),
            Change(5.0, "return", 3),
        ]
    )


def check_plan(changes: list[Change]) -> None:
    """As the command does it, for a ring of four."""
    Dynamics(changes).check(4)
    Dynamics(changes).check_plan([(0, 1), (1, 2), (2, 3), (0, 3)])


# --- plans that leave nobody, or that the algorithm would not notice -----------------------------


def at(kind: Any, client: int, iteration: int | None = None, time: float | None = None) -> Change:
    return Change(time, kind, client, iteration=iteration)


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize(
    ("changes", "when"),
    [
        ([at("leave", 0, 10), at("leave", 1, 20)], "after the leave of client 1"),
        ([at("leave", 0, time=1.0), at("crash", 1, time=2.0)], "after the crash of client 1"),
        ([at("leave", 0, time=2.0), at("leave", 1, 10)], "after the leave"),
        ([at("leave", 0, 10), at("leave", 1, 20), at("return", 0, 30)], "after the leave of client 1"),
        ([at("join", 0, 10), at("join", 1, 20)], "at the start"),
    ],
)
def test_a_plan_that_leaves_nobody_is_refused(changes: list[Change], when: str, timed: bool) -> None:
    with pytest.raises(UserError, match=f"nobody is there {when}"):
        Dynamics(changes).check_presence(2, timed)


def test_in_virtual_time_somebody_may_come_back_after_all_have_left() -> None:
    changes = [at("leave", 0, time=0.1), at("leave", 1, time=0.2), at("return", 0, time=0.3)]
    Dynamics(changes).check_presence(2, timed=True)
    Dynamics([at("join", 0, time=0.1), at("join", 1, time=0.2)]).check_presence(2, timed=True)
    Dynamics([at("leave", 0, 1), at("leave", 1, 2)], Rates(come_back=1.0)).check_presence(2, timed=False)
    with pytest.raises(UserError, match="nobody is there after the leave of client 1: let one of them stay"):
        Dynamics(changes).check_presence(2, timed=False)


@pytest.mark.parametrize("first", ["leave", "join"])
def test_a_run_goes_on_after_a_time_without_anybody(first: str) -> None:
    graph = swiftfl.ring(3)
    changes = [at(first, i, time=0.05 + 0.01 * i) for i in range(3)]
    changes += [at("return", i, time=0.2) for i in range(3) if first == "leave"]
    Dynamics(changes).check_presence(3, timed=True)
    engine = run_to_end(VirtualEngine(setup_of(Swift(), graph, changes, epochs=4)))
    assert steps(engine) == [steps(engine)[0]] * 3
    assert min(steps(engine)) > 4


@pytest.mark.parametrize("engine", ["virtual", "sampled", "local", "mpi"])
@pytest.mark.parametrize(
    ("algorithm", "why"),
    [
        ("matcha", "matcha draws its pairs from the edges of the start"),
        ("gossip", "gossip draws its pairs from the edges of the start"),
        ("allreduce", "the clients of allreduce average over all, not along edges"),
        ("fedavg", "the clients of fedavg average over all, not along edges"),
    ],
)
def test_edges_that_an_algorithm_would_not_use_are_refused(algorithm: str, why: str, engine: str) -> None:
    config = edge_plan(algorithm, engine, {"iteration": 5, "event": "edge_up", "edge": [0, 2]})
    with pytest.raises(UserError, match=rf"edge_up of edge \[0, 2\] has no effect: {why}"):
        build(config)


def test_matcha_may_lose_an_edge_and_get_it_back() -> None:
    down = {"iteration": 5, "event": "edge_down", "edge": [0, 1]}
    build(edge_plan("matcha", "virtual", down, {**down, "iteration": 9, "event": "edge_up"}))


def edge_plan(algorithm: str, engine: str, *changes: dict[str, Any]) -> Config:
    plan = {"algorithm.name": algorithm, "engine.name": engine, "engine.network.changes": list(changes)}
    return recipe("digits").with_changes({"topology.clients": 4, **plan})
