"""Push-sum between real processes: messages are longer than models, which have a place of their own."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Generator
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from live_worlds import (
    LIMIT,
    check_replay,
    kill,
    last_states,
    let_go,
    live_setup,
    replay,
    resumed_and_replayed,
    running,
    shared_memory_files,
    stopped_resumed_and_replayed,
    under_way,
)
from mpi_jobs import end, needs_mpi, no_job_is_left, swiftfl

from swiftfl import ring
from swiftfl.algorithms import OverlappedSgp, Sgp
from swiftfl.cli.main import run_command
from swiftfl.client import Client, State
from swiftfl.engines.live.journal import needed, read_incarnations, split
from swiftfl.experiment.recipes import recipe
from swiftfl.experiment.run import run
from swiftfl.graph.directed import Directed, Direction, directed
from swiftfl.rules import SgdRule
from swiftfl.vector import wide
from swiftfl.verbs import Publish, WaitFree

__all__ = ["no_job_is_left"]

DIRECTIONS: tuple[Direction, ...] = ("both", "one_way")


def weight_of(states: list[State], graph: Directed) -> float:
    """All weight there is: the clients', and what was sent and not seen."""
    total = 0.0
    for i, state in enumerate(states):
        total += float(wide(state.memory["mass"], state.x)[-1])
        for position, j in enumerate(graph.into[i]):
            sent = states[j].memory["sent"]
            seen = state.memory["seen"][position * sent.size : (position + 1) * sent.size]
            total += float((wide(sent, state.x) - wide(seen, state.x))[-1])
    return total


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_no_weight_is_lost_between_processes_and_a_replay_is_the_same(
    direction: Direction, tmp_path: Path
) -> None:
    graph, before = directed(ring(5), direction), shared_memory_files()
    setup = live_setup(OverlappedSgp(graph, SgdRule(0.5)), n=5, seconds=0.001, epochs=10)
    with running(setup, tmp_path / "clients") as engine:
        assert engine.wait(LIMIT)
        live = engine.models
        assert engine.figures()["refused"] == 0
    assert shared_memory_files() == before
    states = last_states(setup, tmp_path / "clients")
    assert abs(weight_of(states, graph) - 5) < 1e-9
    for mine, state, again in zip(live, states, replay(setup, tmp_path / "clients"), strict=True):
        np.testing.assert_array_equal(mine, state.x)
        np.testing.assert_array_equal(mine, again)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_one_way_rounds_go_on_and_are_replayed(direction: Direction, tmp_path: Path) -> None:
    setup = live_setup(Sgp(directed(ring(4), direction)), seconds=0.002, epochs=8, hold=10)
    stopped_resumed_and_replayed(setup, tmp_path / "clients")


def test_who_goes_on_begins_with_new_masses_that_fit(tmp_path: Path) -> None:
    """A client that was killed goes on from an older step than the others know of: still nothing is lost."""
    graph, folder = directed(ring(4), "both"), tmp_path / "clients"
    setup = live_setup(OverlappedSgp(graph), seconds=0.002, epochs=8, hold=20)
    with running(setup, folder, save_steps=3) as engine:
        under_way(engine, 8)
        kill(engine, 2)
        engine.stop()
        assert engine.wait(LIMIT)
    live = resumed_and_replayed(setup, folder)
    states = last_states(setup, folder)
    assert abs(weight_of(states, graph) - 4) < 1e-9
    assert all(state.c == 41 for state in states)
    assert np.isfinite(live).all()


@pytest.mark.parametrize("form", [OverlappedSgp, Sgp], ids=["overlapped", "synchronous"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_others_keep_what_would_go_to_a_lost_client(
    form: type[OverlappedSgp] | type[Sgp], direction: Direction, tmp_path: Path
) -> None:
    """Otherwise all weight would run out there, and nobody would send: which is said where it is so."""
    setup = live_setup(form(directed(ring(5), direction)), n=5, seconds=0.001, epochs=40, hold=10)
    with running(setup, tmp_path / "clients") as engine:
        under_way(engine, 5)
        kill(engine, 1)
        let_go(setup)
        assert engine.wait(LIMIT)
        assert engine.figures()["lost"] == [1]
        assert any("stop the run and resume it" in text for text in engine.figures()["warnings"]) == (
            direction == "one_way"
        )
        live = engine.models
    left = last_states(setup, tmp_path / "clients", (0, 2, 3, 4))
    weights = [float(wide(state.memory["mass"], state.x)[-1]) for state in left]
    assert min(weights) > 0
    if direction == "both" and form is Sgp:  # overlapped, much may be under way to who has finished
        assert sum(weights) > 2  # of 5; what was with the lost client, or on its way to it, is lost
    assert all(state.c == 201 for state in left)
    check_replay(setup, tmp_path / "clients", live, (0, 2, 3, 4))


class KilledAfterSending(OverlappedSgp):
    """Client 1 sends in its sixth step, lets the others take that, and is killed before it fetches."""

    def step(self, me: Client, s: State) -> Generator[WaitFree, object, State]:
        steps, reply = super().step(me, s), None
        while True:
            try:
                verb = steps.send(reply)
            except StopIteration as end:
                return cast(State, end.value)
            reply = yield verb
            if isinstance(verb, Publish) and (me.index, s.c) == (1, 6) and os.getpid() != TESTS:
                time.sleep(0.5)
                os.kill(os.getpid(), signal.SIGKILL)


TESTS = os.getpid()
"""Here a run is replayed, and nobody is killed."""


def test_what_a_killed_client_sent_in_its_last_step_is_replayed(tmp_path: Path) -> None:
    """That step is on no record of its own: others have used what it sent all the same."""
    algorithm = KilledAfterSending(directed(ring(5), "both"))
    setup = live_setup(algorithm, n=5, seconds=0.02, epochs=20)
    with running(setup, tmp_path / "clients") as engine:
        assert engine.wait(LIMIT)
        assert engine.figures()["lost"] == [1]
        live = engine.models
    used = needed([each for i in range(5) for each in read_incarnations(tmp_path / "clients", i, 5)])
    assert any(client == 1 and split(name)[1] == 6 for client, name in used)
    check_replay(setup, tmp_path / "clients", live, (0, 2, 3, 4))


@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_a_run_is_evaluated_while_it_trains(start: str, tmp_path: Path) -> None:
    config = recipe("digits").with_changes(
        {
            "engine.name": "local",
            "engine.live.start": start,
            "engine.epochs": 20,
            "engine.live.evaluate_seconds": 0.2,
            "topology.clients": 4,
            "algorithm.name": "sgp",
            "algorithm.form": "synchronous",
        }
    )
    result = run(config, tmp_path / start)
    rows = [json.loads(row) for row in (tmp_path / start / "metrics.jsonl").read_text().splitlines()]
    accuracies = [row["accuracy"] for row in rows]
    assert len(accuracies) > 2
    assert accuracies[0] < 0.3
    assert accuracies[-1] > 0.8
    assert len(result.models) == 4
    assert run_command(["replay", str(tmp_path / start)]) == 0


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("form", ["overlapped", "synchronous"])
def test_under_mpi_it_is_evaluated_and_replayed(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "run")
    tiny = ("--clients", "3", "--epochs", "4", "--model", "logistic", "--algorithm", "sgp", "--form", form)
    done = end(swiftfl(3, "run", "digits", "--engine", "mpi", *tiny, "--out", out, "--json"))
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["refused"] == 0
    assert answer["accuracy"] > 0.6 or form == "overlapped"  # which depends on who runs when
    assert run_command(["replay", out]) == 0
    assert "3 of 3 models are the same, bit for bit" in capsys.readouterr().out
