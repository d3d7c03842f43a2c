"""Local clients select their weights themselves (`--ccs distributed`): the bits of the central CCS."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from live_worlds import (
    LIMIT,
    check_replay,
    events,
    kill,
    let_go,
    live_setup,
    resumed,
    running,
    steps,
    stop,
    under_way,
    until,
)

import swiftfl
from swiftfl.algorithm import Algorithm
from swiftfl.algorithms import Swift, dsgd
from swiftfl.engines import Setup
from swiftfl.engines.assignment import Assignment
from swiftfl.engines.live.local.engine import LocalEngine
from swiftfl.engines.live.selecting import OwnSelection
from swiftfl.transports.base import SmallMessage
from swiftfl.transports.shared_memory.transport import SharedMemoryTransport
from swiftfl.vector import Weights
from swiftfl.verbs import Verb
from worlds import skewed

GRAPH = swiftfl.barabasi_albert(7, 2, seed=5)  # larger, equal and smaller neighbours
ALGORITHMS = [Swift(), dsgd()]
both = pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: a.name)
ACCEPT = 3


def setup_of(algorithm: Algorithm[Verb], scores: np.ndarray | None = None, **options: Any) -> Setup:
    options = {"epochs": 12, "seconds": 0.004, **options}
    return live_setup(algorithm, graph=GRAPH, influence=scores, ccs="distributed", **options)


def adopted(folder: Path, i: int) -> list[Weights]:
    """The weights that client i has used, one after the other, as its journal has them."""
    whole = (folder / f"client-{i:04d}.jsonl").read_text().split("\n")[:-1]
    rows = [json.loads(line) for line in whole if line]
    return [Weights(row[3], dict(row[4])) for row in rows if row[0] == "terms"]


def central(setup: Setup, lost: set[int]) -> dict[int, Weights]:
    """What a central renewal gives among those who are left."""
    assert setup.network is not None
    network = setup.network()
    network.known -= lost
    return {i: w for i, (w, _) in network.renew().items()}


def selected(engine: LocalEngine, epoch: int) -> None:
    """Wait until everybody has ended this run of CCS."""
    until(lambda: any(e["epoch"] == epoch for e in events(engine, "ccs")), f"the end of epoch {epoch}")


@pytest.mark.parametrize("scores", [None, skewed(GRAPH.n)], ids=["uniform", "skewed"])
@both
def test_before_the_first_step(algorithm, scores: np.ndarray | None, tmp_path: Path) -> None:
    setup = setup_of(algorithm, scores, epochs=2)
    with running(setup, tmp_path / "clients") as engine:
        assert engine.wait(LIMIT)
        figures, live = engine.figures(), engine.models
    for i in range(GRAPH.n):
        assert adopted(tmp_path / "clients", i) == [setup.weights[i]]  # floats, exactly
    degree, edges = GRAPH.degrees, GRAPH.edges
    ties = int((degree[edges[:, 0]] == degree[edges[:, 1]]).sum())
    sent = 4 * (GRAPH.m - ties) + 6 * ties
    assert ties
    assert ties < GRAPH.m
    assert {**figures["ccs"], "seconds": 0} == {"runs": 1, "messages": sent, "bytes": 32 * sent, "seconds": 0}
    assert 0 < figures["ccs"]["seconds"] < LIMIT
    assert figures["renewals"] == 0
    check_replay(setup, tmp_path / "clients", live, engine.members())


@pytest.mark.parametrize(
    ("algorithm", "scores"),
    [
        pytest.param(Swift(), None, marks=pytest.mark.slow),
        (Swift(), skewed(GRAPH.n)),
        (dsgd(), None),
        pytest.param(dsgd(), skewed(GRAPH.n), marks=pytest.mark.slow),
    ],
    ids=["swift", "swift-skewed", "dsgd", "dsgd-skewed"],
)
def test_after_deaths(algorithm, scores: np.ndarray | None, tmp_path: Path) -> None:
    """One alone, then two at once."""
    setup = setup_of(algorithm, scores, seconds=0.02 if algorithm.in_rounds else 0.004, epochs=24, hold=30)
    folder = tmp_path / "clients"
    first, last = central(setup, {2}), central(setup, {2, 5, 6})
    with running(setup, folder) as engine:
        under_way(engine)
        kill(engine, 2)
        until(lambda: all(adopted(folder, i)[-1] == first[i] for i in first), "the use of new weights")
        kill(engine, 5, 6)
        selected(engine, 3)
        let_go(setup)
        assert engine.wait(LIMIT)
        figures, live = engine.figures(), engine.models
    assert figures["ccs"]["runs"] == 4
    assert figures["renewals"] == 3
    for i in engine.members():
        weights = adopted(folder, i)
        assert weights[0] == setup.weights[i]
        assert weights[1] == first[i]
        assert weights[-1] == last[i]
    check_replay(setup, folder, live, engine.members())


@both
def test_one_that_dies_while_the_first_weights_are_selected(
    algorithm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has told one neighbour its degree and another nothing; the rest begins anew without it."""
    begin = OwnSelection._begin

    def begin_and_die(self: OwnSelection, assignment: Assignment) -> None:
        if self.i == 2:
            hello = assignment.selection(2).start()[0]
            self._send([hello])
            os.kill(os.getpid(), signal.SIGKILL)
        begin(self, assignment)

    monkeypatch.setattr(OwnSelection, "_begin", begin_and_die)
    setup, folder = setup_of(algorithm, epochs=2), tmp_path / "clients"
    with running(setup, folder) as engine:
        assert engine.wait(LIMIT)
        assert engine.supervisor.lost == [2]
        assert engine.figures()["ccs"]["runs"] == 2
        live = engine.models
    for i, expected in central(setup, {2}).items():
        assert adopted(folder, i)[-1] == expected
        assert json.loads((folder / f"client-{i:04d}.jsonl").read_text().splitlines()[-1]) == ["end", 11]
    check_replay(setup, folder, live, engine.members())


@both
def test_a_message_that_is_lost_holds_up_nobody(
    algorithm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its receiver trains on under its old weights; the next epoch reaches everybody."""
    tell = SharedMemoryTransport.tell

    def lossy(self: SharedMemoryTransport, neighbour: int, message: SmallMessage) -> None:
        if not (message.kind == ACCEPT and message.epoch == 1):
            tell(self, neighbour, message)

    monkeypatch.setattr(SharedMemoryTransport, "tell", lossy)
    setup, folder = setup_of(algorithm, epochs=40, hold=80), tmp_path / "clients"
    with running(setup, folder) as engine:
        under_way(engine)
        kill(engine, 2)
        before = steps(engine)
        until(lambda: all(steps(engine)[i] > before[i] + 20 for i in engine.members()), "twenty more steps")
        assert [e["epoch"] for e in events(engine, "ccs")] == [0]
        kill(engine, 4)
        selected(engine, 2)
        let_go(setup)
        assert engine.wait(LIMIT)
        live = engine.models
    last = central(setup, {2, 4})
    for i in engine.members():
        assert adopted(folder, i)[-1] == last[i]
    check_replay(setup, folder, live, engine.members())


def test_a_stopped_neighbour_holds_up_nobodys_steps(tmp_path: Path) -> None:
    """CCS waits for it, the clients do not; when it goes on, all get their weights."""
    setup, folder = setup_of(Swift(), epochs=40, hold=80), tmp_path / "clients"
    with running(setup, folder) as engine:
        under_way(engine)
        os.kill(engine.pid(0), signal.SIGSTOP)
        kill(engine, 6)
        before, others = steps(engine), [i for i in engine.members() if i]
        until(lambda: all(steps(engine)[i] > before[i] + 20 for i in others), "twenty more steps")
        assert [e["epoch"] for e in events(engine, "ccs")] == [0]
        os.kill(engine.pid(0), signal.SIGCONT)
        selected(engine, 1)
        let_go(setup)
        assert engine.wait(LIMIT)
    last = central(setup, {6})
    assert all(adopted(folder, i)[-1] == last[i] for i in engine.members())


@both
def test_one_that_comes_back_selects_again(algorithm, tmp_path: Path) -> None:
    setup, folder = setup_of(algorithm, epochs=40, hold=80), tmp_path / "clients"
    with running(setup, folder, restart_lost=True, save_seconds=None) as engine:
        under_way(engine, 12)
        os.kill(engine.pid(2), signal.SIGKILL)
        until(lambda: bool(events(engine, "join")), "the return")
        epoch = int(engine.figures()["renewals"])
        selected(engine, epoch)
        let_go(setup)
        assert engine.wait(LIMIT)
        assert engine.supervisor.lost == []
        assert steps(engine) == [201.0] * GRAPH.n
        live = engine.models
    last = central(setup, set())
    assert all(adopted(folder, i)[-1] == last[i] for i in range(GRAPH.n))
    check_replay(setup, folder, live, engine.members())


@both
def test_a_stop_during_the_first_selection(
    algorithm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One client is stopped from outside before it has said anything: the run still ends, and soon."""
    begin = OwnSelection._begin

    def hang(self: OwnSelection, assignment: Assignment) -> None:
        if self.i == 3 and not assignment.epoch:
            os.kill(os.getpid(), signal.SIGSTOP)
        begin(self, assignment)

    monkeypatch.setattr(OwnSelection, "_begin", hang)
    with running(setup_of(algorithm), tmp_path / "clients", patience=3.0) as engine:
        others = {*range(GRAPH.n)} - {3}
        until(lambda: all(map(engine.status.waits, others)), "the first selection")
        until(lambda: engine.is_stopped(3), "the stop of client 3")
        assert not engine.status.started
        engine.stop()
        assert engine.wait(LIMIT)
        assert engine.supervisor.lost == [3]


def test_a_run_that_goes_on_selects_anew(tmp_path: Path) -> None:
    setup, folder = setup_of(dsgd(), epochs=16, hold=15), tmp_path / "clients"
    with running(setup, folder) as engine:
        under_way(engine)
        stop(engine)
    with resumed(setup, folder) as engine:
        assert engine.wait(LIMIT)
        live = engine.models
    for i in range(GRAPH.n):
        assert adopted(folder, i) == [setup.weights[i]] * 2
    check_replay(setup, folder, live, engine.members())
