"""Planned changes of a live run: edges, joins and leaves; what holds after each, resumed and replayed.

In engine local, and in engine mpi with threads as its ranks; `test_mpi_command.py` has real ones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from in_process_job import Ranks
from live_worlds import (
    check_conditions,
    check_replay,
    events,
    hold_later,
    let_go,
    live_setup,
    running,
    steps,
    stop,
    until,
)

from swiftfl.algorithms import AllReduceSgd, Swift, dsgd
from swiftfl.engines import Setup
from swiftfl.engines.dynamics import Change, Dynamics
from swiftfl.engines.live.changes import apply
from swiftfl.engines.live.common_round import CommonRound
from swiftfl.engines.live.journal import read_incarnations
from swiftfl.engines.live.local.engine import LocalEngine
from swiftfl.engines.live.mpi.engine import MpiEngine
from swiftfl.engines.live.resume import ResumePoint, find_resume_point
from swiftfl.engines.live.selecting import digest_of
from swiftfl.engines.live.status import AT, HOLDING, RUNNING, StatusTable
from swiftfl.errors import UserError
from swiftfl.experiment.config import parse
from swiftfl.schedule import every

ALGORITHMS: dict[str, Any] = {"swift": Swift(every(0)), "dsgd": dsgd(), "allreduce": AllReduceSgd()}
BOTH = pytest.mark.parametrize("name", ["swift", "dsgd"])
ENGINES = pytest.mark.parametrize("kind", ["local", "mpi"])
CROSSED = pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("swift", "mpi"),
        ("dsgd", "local"),
        pytest.param("swift", "local", marks=pytest.mark.slow),
        pytest.param("dsgd", "mpi", marks=pytest.mark.slow),
    ],
)
N = 5
RING = {(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)}


def setup_of(name: str, *changes: Change, **options: Any) -> Setup:
    method = "ccs" if name == "swift" or "ccs" in options else "metropolis"
    dynamics = Dynamics(changes)
    return live_setup(ALGORITHMS[name], N, 0.01, method, dynamics, **{"epochs": 16, **options})


@contextlib.contextmanager
def started(
    kind: str, setup: Setup, folder: Path, resume: ResumePoint | None = None
) -> Iterator[LocalEngine | MpiEngine]:
    """The engine that has the record: of engine mpi, that of the first rank."""
    if kind == "local":
        with running(setup, folder, resume) as engine:
            yield engine
        return
    ranks = Ranks(setup, folder, resume)
    yield ranks.first
    ranks.to_the_end()


def happened(setup: Setup, engine: LocalEngine | MpiEngine, *kinds: str) -> None:
    """Wait for changes, for which the run is held up: it could be over before somebody orders them."""
    for kind in kinds:
        until(lambda kind=kind: bool(events(engine, kind)), kind)  # type: ignore[misc]
    let_go(setup)


def to_the_end(engine: LocalEngine | MpiEngine) -> None:
    until(lambda: engine.wait(0.05), "the end")


def check_selected(setup: Setup, folder: Path) -> None:
    """The last weights are those of a central renewal after all changes, bit for bit."""
    assert setup.network is not None
    network = setup.network()
    apply(network, network.dynamics.changes)
    for i, (w, _) in network.renew().items():
        assert read_incarnations(folder, i, N)[-1].terms[-1][1].w == w


@pytest.mark.parametrize(
    ("name", "kind", "ccs"),
    [
        ("swift", "local", "central"),
        ("dsgd", "mpi", "central"),
        ("swift", "mpi", "distributed"),
        ("dsgd", "local", "distributed"),
        pytest.param("dsgd", "local", "central", marks=pytest.mark.slow),
        pytest.param("swift", "mpi", "central", marks=pytest.mark.slow),
        pytest.param("dsgd", "mpi", "distributed", marks=pytest.mark.slow),
        pytest.param("swift", "local", "distributed", marks=pytest.mark.slow),
    ],
)
def test_an_edge_goes_another_comes_and_a_client_joins(
    name: str, kind: str, ccs: str, tmp_path: Path
) -> None:
    """By iteration and by time; everybody agrees on every edge, and the run is repeated bit for bit."""
    changes = (
        Change(None, "edge_down", edge=(1, 2), iteration=60),
        Change(None, "edge_up", edge=(1, 3), iteration=60),
        Change(0.4, "join", 4),
    )
    setup = setup_of(name, *changes, ccs=ccs, hold=40)
    with started(kind, setup, tmp_path) as engine:
        happened(setup, engine, "edge_down", "edge_up", "join")
        to_the_end(engine)
        found = [row for row in engine.supervisor._log if row["event"] not in ("renew", "ccs")]
        assert sorted(row["event"] for row in found) == ["edge_down", "edge_up", "join"]
        if ccs == "central":
            assert {row["checked"] for row in events(engine, "renew")} == {"abcd"}
        else:
            check_selected(setup, tmp_path)
        assert events(engine, "renew")[-1]["clients"] == 5
        assert events(engine, "edge_down")[0]["iteration"] >= 60
        assert events(engine, "join")[0]["time"] >= 0.4
        assert engine.members() == list(range(N))
        assert engine.supervisor.lost == []
        assert engine.iteration == sum(engine.status.column("steps"))
        check_conditions(tmp_path, N, RING - {(1, 2)} | {(1, 3)}, set(range(N)))
        check_replay(setup, tmp_path, engine.models)
    first = read_incarnations(tmp_path, 4, N)[0]
    assert first.how == "model"
    assert first.source[1] > 0, "it started from a model that somebody had trained"


@ENGINES
@pytest.mark.parametrize("name", ALGORITHMS)
def test_nobody_waits_for_a_client_that_leaves(name: str, kind: str, tmp_path: Path) -> None:
    setup = setup_of(name, Change(None, "leave", 2, iteration=80), epochs=12, hold=20)
    with started(kind, setup, tmp_path) as engine:
        happened(setup, engine, "leave")
        to_the_end(engine)
        taken = steps(engine)
        assert 1 < taken[2] < 61
        assert [taken[i] for i in (0, 1, 3, 4)] == [61] * 4
        assert engine.members() == [0, 1, 3, 4]
        assert engine.supervisor.lost == []
        assert events(engine, "leave")[0]["client"] == 2
        assert events(engine, "renew")[-1]["clients"] == 4
        saved = list(tmp_path.glob("client-0002.safetensors"))
        assert len(saved) == 1
        left = {edge for edge in RING if 2 not in edge}
        check_conditions(tmp_path, N, left, {0, 1, 3, 4})
        check_replay(setup, tmp_path, engine.models)


@BOTH
def test_a_client_leaves_and_joins_again(name: str, tmp_path: Path) -> None:
    changes = Change(None, "leave", 2, iteration=40), Change(None, "join", 2, iteration=120)
    setup = setup_of(name, *changes, hold=40)
    with started("local", setup, tmp_path) as engine:
        happened(setup, engine, "leave", "join")
        to_the_end(engine)
        assert [row["event"] for row in engine.supervisor._log if "client" in row] == ["leave", "join"]
        assert engine.members() == list(range(N))
        check_replay(setup, tmp_path, engine.models)
    assert [each.number for each in read_incarnations(tmp_path, 2, N)] == [0, 1]


@ENGINES
def test_a_reduction_is_over_those_who_are_there(kind: str, tmp_path: Path) -> None:
    setup = setup_of("allreduce", Change(0.1, "leave", 1), Change(0.2, "join", 4), hold=30)
    with started(kind, setup, tmp_path) as engine:
        happened(setup, engine, "leave", "join")
        to_the_end(engine)
        assert engine.members() == [0, 2, 3, 4]
        models = engine.models
        assert all(np.array_equal(models[0], models[i]) for i in (2, 3))
        check_replay(setup, tmp_path, engine.models)


@CROSSED
def test_a_run_is_stopped_before_and_after_its_changes(name: str, kind: str, tmp_path: Path) -> None:
    """The first session has no client 4, the second starts without the edge, the third with client 4."""
    changes = Change(None, "edge_down", edge=(1, 2), iteration=30), Change(None, "join", 4, iteration=150)
    # Held up at 80 steps in all, so that the first session is stopped before the join.
    setup = setup_of(name, *changes, Change(None, "edge_up", edge=(0, 2), iteration=30), hold=20)

    def session(elapsed: float | None) -> contextlib.AbstractContextManager[LocalEngine | MpiEngine]:
        resume = None if elapsed is None else find_resume_point(tmp_path, setup, elapsed)
        return started(kind, setup, tmp_path, resume)

    with session(None) as engine:
        until(lambda: bool(events(engine, "edge_down")), "the change of the edge")
        stop(engine)
    hold_later(setup, 60)
    assert not (tmp_path / "client-0004.jsonl").exists()
    with session(engine.now) as engine:
        assert engine.members() == [0, 1, 2, 3]
        until(lambda: bool(events(engine, "join")) and steps(engine)[4] > 3, "the join")
        stop(engine)
        assert not events(engine, "edge_down"), "it had happened before"
    with session(engine.now) as engine:
        assert engine.members() == list(range(N))
        to_the_end(engine)
        assert not events(engine, "join")
        assert engine.iteration == sum(engine.status.column("steps"))
        check_conditions(tmp_path, N, RING - {(1, 2)} | {(0, 2)}, set(range(N)))
        check_replay(setup, tmp_path, engine.models)


@CROSSED
def test_clients_that_select_their_weights_go_on_after_a_stop(name: str, kind: str, tmp_path: Path) -> None:
    """One leaves, the run is stopped, goes on without it, and another one joins."""
    changes = Change(None, "leave", 2, iteration=30), Change(None, "join", 4, iteration=150)
    # Held up at 60 steps in all, so that the first session is stopped before the join.
    setup = setup_of(name, *changes, ccs="distributed", hold=15)
    with started(kind, setup, tmp_path) as engine:
        until(lambda: any(row["epoch"] for row in events(engine, "ccs")), "the renewal")
        stop(engine)
        assert events(engine, "leave")
    hold_later(setup, 60)
    with started(kind, setup, tmp_path, find_resume_point(tmp_path, setup, engine.now)) as engine:
        happened(setup, engine, "join")
        to_the_end(engine)
        assert engine.members() == [0, 1, 3, 4]
        assert events(engine, "join")
        check_selected(setup, tmp_path)
        check_replay(setup, tmp_path, engine.models, engine.members())


def test_a_client_that_is_alone_and_has_passed_the_common_round_is_waited_for() -> None:
    """It was told too late, and nobody held it up: then all hold before a later round."""
    status = StatusTable(2)
    common = CommonRound(status, in_rounds=True)
    for i in (0, 1):
        status.place(i, 48)
        status.enter(i, RUNNING)
    assert common.pause({0: RUNNING, 1: RUNNING}, 0) is None  # names round 49
    for i, c in enumerate((49, 57)):
        status.place(i, c)
        status.enter(i, HOLDING)
    holding = {0: HOLDING, 1: HOLDING}
    until(lambda: common.pause(holding, 0) is None and status.order(57) == "go_on", "a later round")
    for i in (0, 1):
        status.place(i, 58)
    assert common.pause(holding, 0) == 58


@ENGINES
def test_weights_that_clients_have_selected_are_checked(kind: str, tmp_path: Path) -> None:
    """Against those that a central renewal gives: with the same digest they are the same."""
    setup = setup_of(
        "swift", Change(None, "edge_up", edge=(1, 3), iteration=40), ccs="distributed", epochs=12, hold=20
    )
    with started(kind, setup, tmp_path) as engine:
        until(lambda: len(events(engine, "ccs")) == 2, "the renewal")
        let_go(setup)
        to_the_end(engine)
        assert [row.get("checked") for row in events(engine, "ccs")] == [None, "abcd"]
        assert engine.supervisor.warnings == []
        engine.status.rows[2, AT["ccs_digest"]] = digest_of(setup.weights[2]) + 1
        assert engine.supervisor.own_ccs is not None
        assert engine.supervisor._check_selected(engine.supervisor.own_ccs) == {}
        assert engine.supervisor.warnings == ["client 2 has selected other weights than CCS gives in epoch 1"]


@ENGINES
def test_what_the_run_does_not_come_to_is_told(kind: str, tmp_path: Path) -> None:
    setup = setup_of("swift", Change(1000.0, "join", 4), epochs=2)
    with started(kind, setup, tmp_path) as engine:
        to_the_end(engine)
        assert engine.supervisor.warnings == ["the run ended before the join of client 4 at 1000 s"]
        assert engine.members() == [0, 1, 2, 3]
        check_replay(setup, tmp_path, engine.models)


def event(kind: str, time: float = 1.0, **more: float) -> dict[str, Any]:
    return {"time": time, "event": kind, "client": 3, **more}


@pytest.mark.parametrize(
    ("network", "engine", "told"),
    [
        ({"changes": [event("crash")]}, "local", "crash of client 3 needs the virtual engine"),
        ({"changes": [event("sleep", seconds=1)]}, "mpi", "sleep of client 3 needs the virtual engine"),
        ({"crash_rate": 0.5}, "local", "engine.network.crash_rate needs the virtual engine"),
        ({"notice": 0.5}, "mpi", "engine.network.notice needs the virtual engine"),
        ({"changes": [event("join", 2.0), event("leave")]}, "mpi", "joins again after it has left"),
    ],
)
def test_what_real_clients_cannot_do_is_refused(network: dict[str, Any], engine: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        parse({"engine": {"name": engine, "epochs": 1, "network": network}})
