"""Live runs that end well: the same quality as in simulation, the same bits when replayed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from live_worlds import (
    LIMIT,
    alive,
    check_replay,
    let_go,
    live_setup,
    pids,
    replay,
    running,
    shared_memory_files,
    steps,
    stop,
    under_way,
    until,
)

import swiftfl
from swiftfl.algorithms import (
    A2cid2,
    AdPsgd,
    AllReduceSgd,
    AsyncGossip,
    DivShare,
    FedAvg,
    Gossip,
    Matcha,
    Prague,
    QuasiGlobal,
    Sgp,
    SoftDsgd,
    Swarm,
    Swift,
    WaitFreeQuasiGlobal,
    dsgd,
    ldsgd,
    pasgd,
)
from swiftfl.costs import Costs
from swiftfl.engines import VirtualEngine
from swiftfl.engines.dynamics import Dynamics
from swiftfl.engines.influence import rate_report
from swiftfl.engines.live.resume import find_resume_point
from swiftfl.errors import UserError
from swiftfl.graph.acceleration import acceleration
from swiftfl.graph.directed import directed
from swiftfl.graph.matchings import matching_plan
from swiftfl.rules import SgdRule
from swiftfl.schedule import every
from worlds import run_to_end, slow

IN_ROUNDS = [
    dsgd(SgdRule(0.9)),
    pasgd(2),
    ldsgd(1, 2),
    AllReduceSgd(),
    FedAvg(),
    Gossip(swiftfl.ring(4)),
    Matcha(matching_plan(swiftfl.ring(4), 0.5)),
    FedAvg(every(1), SgdRule(0.5), "fedavg_half", participation=0.5, clients=4),
    Prague(swiftfl.ring(4)),
    QuasiGlobal(),
    SoftDsgd(),
    Sgp(directed(swiftfl.ring(4), "both"), SgdRule(0.5)),
]


def test_swift_ends_near_the_optimum_and_leaves_nothing_behind(tmp_path: Path) -> None:
    before = shared_memory_files()
    setup = live_setup(Swift(), seconds=0.0, epochs=60, noise=0.0)
    with running(setup, tmp_path / "clients") as engine:
        mine = pids(engine)
        assert engine.wait(LIMIT)
        live = np.mean(engine.models, axis=0)
    simulated = np.mean(run_to_end(VirtualEngine(dataclasses.replace(setup, network=None))).models, axis=0)
    assert engine.supervisor.lost == []
    assert engine.fork_server is not None
    assert not engine.stopped
    assert steps(engine) == [301.0] * 4
    assert np.linalg.norm(live - simulated) < 0.2 * np.linalg.norm(simulated)
    assert not any(map(alive, [*mine, engine.fork_server.pid]))
    assert shared_memory_files() == before


@pytest.mark.parametrize("algorithm", IN_ROUNDS, ids=lambda a: a.name)
def test_algorithms_in_rounds_end_as_in_simulation(algorithm, tmp_path: Path) -> None:
    setup = live_setup(algorithm, seconds=0.0, method="metropolis", epochs=6)
    with running(setup, tmp_path / "clients") as engine:
        assert engine.wait(LIMIT)
        live = engine.models
    simulated = run_to_end(VirtualEngine(dataclasses.replace(setup, network=None))).models
    again = replay(setup, tmp_path / "clients")
    for mine, theirs, repeated in zip(live, simulated, again, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)
        np.testing.assert_array_equal(mine, repeated)


@pytest.mark.parametrize(
    "algorithm",
    [Swift(every(0), SgdRule(0.9)), Swift(every(2), SgdRule(0.9)), WaitFreeQuasiGlobal(SgdRule(0.5))],
    ids=["C_0", "C_2", "quasi_global"],
)
def test_wait_free_algorithms_are_replayed_bit_for_bit(algorithm, tmp_path: Path) -> None:
    setup = live_setup(algorithm, n=5, seconds=0.001, epochs=10)
    with running(setup, tmp_path / "clients") as engine:
        assert engine.wait(LIMIT)
        live = engine.models
    check_replay(setup, tmp_path / "clients", live)


@pytest.mark.parametrize(
    "algorithm",
    [
        AdPsgd(),
        AdPsgd(averaging="background"),
        Swarm(2, SgdRule(0.5)),
        AsyncGossip(),
        A2cid2(acceleration(swiftfl.ring(4), 1.0)),
    ],
    ids=["adpsgd", "adpsgd, background", "swarm", "gossip_async", "a2cid2"],
)
def test_shared_cells_run_and_cannot_be_replayed(algorithm, tmp_path: Path) -> None:
    setup = live_setup(algorithm, seconds=0.001, method="metropolis", epochs=6)
    with running(setup, tmp_path / "clients") as engine:
        assert engine.wait(LIMIT)
        assert np.isfinite(engine.models).all()
        assert all((x != engine.x0).any() for x in engine.models)
    with pytest.raises(UserError, match="cannot be replayed"):
        replay(setup, tmp_path / "clients")


def test_fragments_are_refused() -> None:
    setup = live_setup(DivShare(fragments=2), epochs=6)
    with (
        pytest.raises(UserError, match=r"divshare sends fragments .*: use --engine virtual or sampled"),
        running(setup),
    ):
        pass


def test_models_can_be_seen_while_they_are_trained() -> None:
    for algorithm, method in ((Swift(), "ccs"), (dsgd(), "metropolis"), (AdPsgd(), "metropolis")):
        with running(live_setup(algorithm, seconds=0.002, method=method, epochs=10_000)) as engine:
            until(lambda: all((x != engine.x0).any() for x in engine.models), "a model to look at")


def test_a_count_of_iterations_ends_a_run() -> None:
    for algorithm, method in ((Swift(), "ccs"), (dsgd(), "metropolis")):
        setup = live_setup(algorithm, seconds=0.002, method=method, iterations=60)
        with running(setup) as engine:
            assert engine.wait(LIMIT)
            assert not engine.stopped
            assert 60 <= engine.iteration <= 400
            if setup.algorithm.in_rounds:
                assert len(set(steps(engine))) == 1


@pytest.mark.parametrize(("algorithm", "method"), [(Swift(rule=SgdRule(0.9)), "ccs"), (dsgd(), "metropolis")])
def test_a_stopped_run_goes_on_and_is_replayed_as_a_whole(algorithm, method, tmp_path: Path) -> None:
    setup, folder = live_setup(algorithm, method=method, epochs=12, hold=10), tmp_path / "clients"
    with running(setup, folder) as engine:
        under_way(engine, 5)
        stop(engine)
        assert engine.supervisor.lost == []
    point = find_resume_point(folder, setup)
    assert [start.c for start in point.starts if start] == steps(engine)
    if setup.algorithm.in_rounds:
        assert len(set(steps(engine))) == 1
    let_go(setup)
    with running(setup, folder, point) as engine:
        assert engine.wait(LIMIT)
        assert steps(engine) == [61.0] * 4
        live = engine.models
    check_replay(setup, folder, live)


def test_a_slow_client_slows_nobody_and_its_rate_is_seen() -> None:
    setup = live_setup(Swift(), seconds=0.005, epochs=400, costs=Costs(slowdowns=slow({1: 4.0})))
    with running(setup) as engine:
        until(lambda: max(steps(engine)) >= 60, "60 steps")
        taken = steps(engine)
        seconds = np.sum(list(engine.status.seconds().values()), axis=0).tolist()
    assert taken[1] < 0.6 * min(taken[0], taken[2], taken[3])
    report = rate_report(range(4), [0.25] * 4, setup.weights, engine.status.column("steps"), seconds)
    assert report.true[1] < 0.18 < min(report.true[0], report.true[2], report.true[3])
    assert report.gap > 0.05
    assert report.row_sum_error > 0.01


def test_measured_influence_is_sent_to_clients_while_they_train(tmp_path: Path) -> None:
    dynamics = Dynamics(measured=True, keep_objective=True, measure_every=10)
    costs = Costs(slowdowns=slow({1: 4.0}))
    setup = live_setup(Swift(), seconds=0.004, epochs=400, costs=costs, dynamics=dynamics)
    with running(setup, tmp_path / "clients") as engine:
        assert engine.supervisor.network is not None
        until(
            lambda: engine.supervisor.network is not None and engine.supervisor.network.renewals >= 3,
            "three renewals",
        )
        assert engine.supervisor.network.influence[1] < 0.2
        assert engine.terms[1].scale > 1.2
        until(lambda: (tmp_path / "clients/client-0001.jsonl").read_text().count('"terms"') >= 2, "new terms")
