"""CCS run by simulated clients themselves: the bits of central CCS, at the cost of its messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import swiftfl
from swiftfl.algorithms import Swift, dsgd
from swiftfl.costs import Costs, Link
from swiftfl.engines import SampledEngine, VirtualEngine
from swiftfl.engines.assignment import Assignment, check_conditions
from swiftfl.engines.dynamics import Change, Dynamics, Kind, Rates
from swiftfl.engines.membership import Membership
from swiftfl.errors import UserError
from swiftfl.graph import Topology, communication_coefficients
from swiftfl.vector import Weights
from worlds import clocks, quadratic_setup, resumed, run_to_end, skewed, slow, steps

GRAPHS = {
    "ring": swiftfl.ring(6),
    "star": swiftfl.star(5),
    "roc": swiftfl.ring_of_cliques(9, clusters=3),
    "random": swiftfl.erdos_renyi(12, 0.3, seed=3),
}
LATENCY = 0.04
COSTS = Costs(
    compute=0.01, send=0.0, mix=0.0, latency=LATENCY, bandwidth=1e4, slowdowns=slow({1: 1.37, 3: 0.71})
)
ENGINES: dict[str, Any] = {"virtual": VirtualEngine, "sampled": SampledEngine}


def engine_of(
    ccs: str,
    engine: str = "virtual",
    algorithm: Any = None,
    graph: Topology = GRAPHS["roc"],
    p: np.ndarray | None = None,
    changes: list[Change] | tuple[Change, ...] = (),
    rates: Rates = Rates(),
    measured: bool = False,
    **options: Any,
) -> Any:
    influence = communication_coefficients(graph, p, "ccs").influence.tolist()
    dynamics = Dynamics(tuple(changes), rates, measured=measured, keep_objective=measured)
    options = {"epochs": 24, "costs": COSTS, **options}
    setup, _, _ = quadratic_setup(
        algorithm or Swift(),
        graph,
        p,
        ccs=ccs,
        network=lambda: Membership(graph, influence, "ccs", dynamics, 5),
        **options,
    )
    return ENGINES[engine](setup)


def weights(engine: Any) -> dict[int, Weights]:
    """Of everybody who is there, those that wait or those that it has."""
    records = [record for record in engine.world.records if record.present]
    return {r.index: r.next_terms[-1].w if r.next_terms else r.client.w for r in records}


def at(iteration: int, kind: Kind, client: int = -1, edge: Any = None) -> Change:
    return Change(None, kind, client, edge, iteration=iteration)


def influence_of(name: str, n: int) -> np.ndarray | None:
    return skewed(n) if name == "skewed" else None


@pytest.mark.parametrize("influence", ["uniform", "skewed"])
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("engine", ENGINES)
def test_at_the_start_everybody_has_the_bits_of_central_ccs(engine: str, graph: str, influence: str) -> None:
    topology = GRAPHS[graph]
    p = influence_of(influence, topology.n)
    clients = engine_of("distributed", engine, graph=topology, p=p)
    clients.start()
    clients.advance(20 * topology.n)
    central = communication_coefficients(topology, p, "ccs")
    assert weights(clients) == {i: central.weights(i) for i in range(topology.n)}  # floats, exactly
    assert clients.figures()["renewals"] == 0


DEATH = {
    "virtual": [Change(0.3, "crash", 4), Change(0.9, "edge_down", edge=(0, 1)), Change(1.2, "return", 4)],
    "sampled": [at(60, "leave", 4), at(120, "edge_down", edge=(0, 1)), at(180, "return", 4)],
}


@pytest.mark.parametrize("influence", ["uniform", "skewed"])
@pytest.mark.parametrize("algorithm", [Swift(), dsgd()], ids=lambda a: a.name)
@pytest.mark.parametrize("changes", [1, 2, 3])
@pytest.mark.parametrize("engine", ENGINES)
def test_after_a_death_everybody_has_the_bits_of_central_ccs(
    engine: str, changes: int, algorithm: Any, influence: str
) -> None:
    p = influence_of(influence, 9)
    options: dict[str, Any] = {"p": p, "algorithm": algorithm, "changes": DEATH[engine][:changes]}
    distributed = run_to_end(engine_of("distributed", engine, epochs=40, **options))
    central = run_to_end(engine_of("central", engine, epochs=40, **options))
    assert weights(distributed) == weights(central)
    assert weights(distributed) != weights(engine_of("central", p=p))
    assert distributed.figures()["renewals"] == central.figures()["renewals"] == changes


def test_where_nothing_takes_time_both_runs_are_the_same() -> None:
    options: dict[str, Any] = {"engine": "sampled", "p": skewed(9), "changes": DEATH["sampled"]}
    distributed, central = (
        run_to_end(engine_of("distributed", **options)),
        run_to_end(engine_of("central", **options)),
    )
    assert all((x == y).all() for x, y in zip(distributed.models, central.models, strict=True))
    assert distributed.world.log.rows == central.world.log.rows


# --- what it costs -----------------------------------------------------------------------------

JOURNEY = LATENCY + 32 / 1e4


def test_on_a_star_the_centre_proposes_and_the_leaves_accept() -> None:
    """HELLO, PROPOSE, ACCEPT: leaves know after two journeys, the centre after three."""
    engine = engine_of("distributed", graph=GRAPHS["star"])
    engine.start()
    assert engine.world.active == 5
    engine.advance(1)
    waited = [record.clock.waiting for record in engine.world.records]
    engine.advance(50)
    assert waited[1:] == pytest.approx([2 * JOURNEY] * 4)
    assert engine.world.records[0].clock.waiting == pytest.approx(3 * JOURNEY)
    assert engine.figures()["ccs"] == {
        "runs": 1,
        "messages": 4 * 4,  # HELLO twice, PROPOSE, ACCEPT along each edge
        "bytes": 4 * 4 * 32,
        "seconds": pytest.approx(3 * JOURNEY),
    }


def test_ties_take_six_messages() -> None:
    engine = run_to_end(engine_of("distributed", graph=GRAPHS["ring"]))
    found = engine.figures()["ccs"]
    assert found["messages"] == 6 * 6
    assert found["seconds"] == pytest.approx(3 * JOURNEY)


def test_a_slow_link_delays_those_whom_it_concerns() -> None:
    costs = Costs(compute=0.01, latency=LATENCY, bandwidth=1e4, links={(0, 1): Link(1.0, 1e4)})
    engine = engine_of("distributed", graph=GRAPHS["star"], costs=costs)
    engine.start()
    engine.advance(400)
    waiting = [record.clock.waiting for record in engine.world.records]
    assert waiting[2:] == pytest.approx(
        [1.0 + 32 / 1e4 + JOURNEY] * 3
    )  # the centre proposes after all HELLOs
    assert waiting[1] == pytest.approx(2 * (1.0 + 32 / 1e4))


def test_a_client_takes_its_new_weights_when_its_own_selection_has_finished() -> None:
    """Nobody waits meanwhile: SWIFT goes on with what it has, where the others take theirs later."""
    engine = engine_of("distributed", graph=GRAPHS["star"], changes=[Change(0.5, "leave", 4)])
    engine.start()
    changed: dict[int, float] = {}
    before = {i: record.client.w for i, record in enumerate(engine.world.records)}
    assert engine.churn is not None
    while engine.world.now < 1.0:
        engine.churn.next_event()
        if engine.world.now > 0.5:
            for i in range(4):
                if engine.world.records[i].client.w != before[i]:
                    changed.setdefault(i, engine.world.now)
        else:
            before = {i: record.client.w for i, record in enumerate(engine.world.records)}
    step = 0.01 * 1.37
    for i in (1, 2, 3):
        assert 0.5 + 2 * JOURNEY <= changed[i] <= 0.5 + 2 * JOURNEY + step + 1e-9
    assert 0.5 + 3 * JOURNEY <= changed[0] <= 0.5 + 3 * JOURNEY + step + 1e-9


# --- overlapping renewals, and pauses ----------------------------------------------------------

OVERLAP = [
    Change(0.05, "leave", 7),  # while the clients select their first weights
    Change(0.5, "edge_down", edge=(0, 1)),
    Change(0.5 + JOURNEY, "leave", 2),
    Change(0.5 + 2.5 * JOURNEY, "edge_up", edge=(0, 4)),
    Change(1.0, "join", 7),
    Change(1.0 + JOURNEY, "crash", 5),  # is noticed after 0.1 s: until then nobody's selection ends
]


@pytest.mark.parametrize("algorithm", [Swift(), dsgd()], ids=lambda a: a.name)
@pytest.mark.parametrize("barrier", ["neighbours", "global"])
def test_a_renewal_during_a_renewal_replaces_it(algorithm: Any, barrier: str) -> None:
    options: dict[str, Any] = {"algorithm": algorithm, "changes": OVERLAP, "p": skewed(9), "epochs": 60}
    distributed = run_to_end(engine_of("distributed", barrier=barrier, **options))
    assert distributed.over
    assert weights(distributed) == weights(run_to_end(engine_of("central", barrier=barrier, **options)))
    found = distributed.figures()
    assert found["renewals"] == found["ccs"]["runs"] - 1 == len(OVERLAP)
    notes = [row for row in distributed.world.log.rows if row["event"] == "renew"]
    assert 2 <= len(notes) < len(OVERLAP)  # the others did not come to their end


@pytest.mark.parametrize("algorithm", [Swift(), dsgd()], ids=lambda a: a.name)
def test_a_pause_in_the_middle_of_a_selection_changes_nothing(algorithm: Any) -> None:
    def world() -> Any:
        return engine_of("distributed", algorithm=algorithm, changes=OVERLAP, p=skewed(9))

    whole = run_to_end(world())
    current, in_the_middle, unstarted = world(), 0, 0
    current.start()
    for events in range(1, 400):
        current.churn.next_event()
        if events % 7 == 0:
            selections = current.churn.renewals.selections
            in_the_middle += bool(selections.flying)
            unstarted += any(record.selecting for record in current.world.records)
            current = resumed(current, world())
    current.advance(10**9)
    assert min(in_the_middle, unstarted) >= 5
    assert steps(current) == steps(whole)
    assert clocks(current) == clocks(whole)
    assert current.figures() == whole.figures()
    assert current.world.log.rows == whole.world.log.rows
    assert all((x == y).all() for x, y in zip(current.models, whole.models, strict=True))


@pytest.mark.parametrize("algorithm", [Swift(), dsgd()], ids=lambda a: a.name)
@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_the_run_ends(algorithm: Any, seed: int) -> None:
    rates = Rates(crash=0.5, come_back=3.0, sleep=0.5, sleep_seconds=0.1, edge_down=0.3, edge_up=3.0)
    engine = run_to_end(engine_of("distributed", algorithm=algorithm, rates=rates, seed=seed, epochs=12))
    assert engine.over
    assert engine.figures()["ccs"]["runs"] > 5


@pytest.mark.parametrize("algorithm", [Swift(), dsgd()], ids=lambda a: a.name)
def test_measured_influence_is_renewed_by_messages(algorithm: Any) -> None:
    """The weights at the end are those of central CCS for the influence that was measured last."""
    engine = run_to_end(engine_of("distributed", algorithm=algorithm, measured=True, epochs=50))
    membership = engine.churn.membership
    assert engine.figures()["ccs"]["runs"] == membership.renewals + 1 >= 5
    central = communication_coefficients(
        GRAPHS["roc"], membership.influence / membership.influence.sum(), "ccs"
    )
    assert weights(engine) == {i: central.weights(i) for i in range(9)}
    assert len(set(membership.influence.tolist())) > 1 or algorithm.in_rounds


# --- what is wrong is said ---------------------------------------------------------------------


def test_a_setup_without_a_network_is_refused() -> None:
    setup, _, _ = quadratic_setup(Swift(), ccs="distributed")
    with pytest.raises(UserError, match="need a network"):
        VirtualEngine(setup)


@pytest.mark.parametrize(
    ("first", "second", "condition"),
    [
        (Weights(0.6, {1: 0.5}), Weights(0.5, {0: 0.5}), "(a)"),
        (Weights(0.4, {1: 0.6}), Weights(0.4, {0: 0.6}), "(b)"),
        (Weights(1.0, {1: 0.0}), Weights(1.0, {0: 0.0}), "(c)"),
        (Weights(0.5, {1: 0.5}), Weights(0.6, {0: 0.4}), "(d)"),
    ],
)
def test_weights_that_break_a_condition_are_named(first: Weights, second: Weights, condition: str) -> None:
    told = {i: Assignment(1, 2, True, 0.5, (1 - i,)) for i in range(2)}
    check_conditions(told, {0: Weights(0.5, {1: 0.5}), 1: Weights(0.5, {0: 0.5})})
    with pytest.raises(UserError) as caught:
        check_conditions(told, {0: first, 1: second})
    assert str(caught.value).startswith(f"{condition} fails")
