"""Clients that are stopped, killed, started again or mad, and disks that are full: the others go on."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from live_worlds import (
    LIMIT,
    Unhurried,
    alive,
    check_replay,
    events,
    kill,
    let_go,
    live_setup,
    pids,
    replay,
    resumed,
    running,
    steps,
    under_way,
    until,
)

from swiftfl.algorithms import AllReduceSgd, FedAvg, Swift, dsgd
from swiftfl.engines.live import saves
from swiftfl.engines.live.local import worker as process
from swiftfl.engines.live.local.forkserver import Launch
from swiftfl.engines.live.local.worker import Worker
from swiftfl.engines.live.status import Tally
from swiftfl.errors import UserError
from swiftfl.rules import SgdRule
from swiftfl.sample import Batch, Slope
from swiftfl.schedule import every
from swiftfl.vector import Memory, Vector


def resident(pid: int) -> int:
    """Bytes of a process's own memory."""
    fields = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
    )
    return int(fields["RssAnon"].split()[0]) * 1024


def test_a_stopped_neighbour_costs_neither_time_nor_memory() -> None:
    with running(live_setup(Swift(), dimension=20_000, epochs=10_000)) as engine:
        under_way(engine, 20)
        os.kill(engine.pid(1), signal.SIGSTOP)
        until(lambda: engine.is_stopped(1), "the stop")
        before, held = steps(engine), {i: resident(engine.pid(i)) for i in (0, 2, 3)}
        # If models for it piled up, these would be 64 MB.
        until(lambda: all(steps(engine)[i] > before[i] + 400 for i in (0, 2, 3)), "400 steps of the others")
        for i in (0, 2, 3):
            assert resident(engine.pid(i)) < held[i] + (4 << 20)
        after = steps(engine)
        assert after[1] == before[1]
        os.kill(engine.pid(1), signal.SIGCONT)
        assert engine.supervisor.lost == []
        until(lambda: steps(engine)[1] > after[1], "the stopped client's next step")


@pytest.mark.parametrize("killed", [(1,), (0, 2), (0, 1, 2)])
def test_survivors_of_a_kill_finish(killed: tuple[int, ...], tmp_path: Path) -> None:
    setup = live_setup(Swift(), epochs=20, hold=15)
    with running(setup, tmp_path / "clients") as engine:
        under_way(engine)
        kill(engine, *killed)
        let_go(setup)
        assert engine.wait(LIMIT)
        assert sorted(engine.supervisor.lost) == list(killed)
        assert [steps(engine)[i] for i in engine.members()] == [101.0] * (4 - len(killed))
        assert engine.supervisor.network is not None
        assert engine.supervisor.network.renewals >= 1
        live = engine.models
        assert sorted(e["client"] for e in events(engine, "lost")) == list(killed)
        for i in engine.members():
            assert abs(engine.terms[i].w.own + sum(engine.terms[i].w.of.values()) - 1) < 1e-12
            assert not set(engine.terms[i].w.of) & set(killed)
    check_replay(setup, tmp_path / "clients", live, engine.members())


@pytest.mark.parametrize("algorithm", [dsgd(), AllReduceSgd()], ids=lambda a: a.name)
def test_algorithms_in_rounds_go_on_without_the_lost(algorithm, tmp_path: Path) -> None:
    setup = live_setup(algorithm, method="metropolis", epochs=20, hold=15)
    with running(setup, tmp_path / "clients") as engine:
        under_way(engine)
        kill(engine, 1)
        let_go(setup)
        assert engine.wait(LIMIT)
        assert engine.supervisor.lost == [1]
        assert [steps(engine)[i] for i in engine.members()] == [101.0] * 3
        assert np.isfinite(engine.models).all()


@pytest.mark.parametrize("saved", [True, False], ids=["its save", "a neighbour's model"])
def test_a_lost_client_comes_back(saved: bool, tmp_path: Path) -> None:
    setup, folder = live_setup(Swift(rule=SgdRule(0.9)), epochs=24, hold=30), tmp_path / "clients"
    with running(
        setup, folder, restart_lost=True, save_seconds=None, save_steps=4 if saved else None
    ) as engine:
        under_way(engine, 12)
        os.kill(engine.pid(2), signal.SIGKILL)
        until(lambda: bool(events(engine, "join")), "the return")
        let_go(setup)
        assert engine.wait(LIMIT)
        assert engine.supervisor.lost == []
        assert engine.supervisor.restarts == [0, 0, 1, 0]
        assert steps(engine) == [121.0] * 4
        assert [e["how"] for e in events(engine, "restart")] == ["save" if saved else "model"]
        assert set(engine.terms[1].w.of) == {0, 2}
        live = engine.models
    check_replay(setup, folder, live)


def test_a_client_comes_back_into_rounds(tmp_path: Path) -> None:
    setup = live_setup(dsgd(), method="metropolis", epochs=40, hold=20)
    with running(setup, tmp_path / "clients", restart_lost=True) as engine:
        under_way(engine, 5)
        os.kill(engine.pid(2), signal.SIGKILL)
        until(lambda: bool(events(engine, "join")), "the return")
        let_go(setup)
        assert engine.wait(LIMIT)
        assert engine.supervisor.lost == []
        assert steps(engine) == [201.0] * 4


PARENT = """
import sys, time
from pathlib import Path
from live_worlds import *
from swiftfl.algorithms import Swift
if __name__ == "__main__":
    with running(live_setup(Swift(), epochs=100000), Path(sys.argv[1])) as engine:
        under_way(engine)
        print(engine.fork_server.pid, *pids(engine), flush=True)
        time.sleep(600)
"""


def test_nobody_outlives_a_killed_parent(tmp_path: Path) -> None:
    tests = Path(__file__).parent
    path = f"{tests}:{tests.parent}:{os.environ.get('PYTHONPATH', '')}"
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-c", PARENT, str(tmp_path / "clients")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        try:
            assert parent.stdout is not None
            theirs = [int(word) for word in parent.stdout.readline().split()]
            assert len(theirs) == 5
            assert all(map(alive, theirs))
        finally:
            parent.kill()
    until(lambda: not any(map(alive, theirs)), "the end of every client")


def test_a_full_disk_costs_saves_and_record_but_not_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def small_files() -> None:
        """In each client: no file may grow beyond 700 bytes."""
        resource.setrlimit(resource.RLIMIT_FSIZE, (700, 700))

    monkeypatch.setattr(process, "one_thread", small_files)
    setup = live_setup(Swift(), dimension=200, epochs=10)
    with running(setup, tmp_path / "clients", save_steps=5) as engine:
        assert engine.wait(LIMIT)
    assert engine.supervisor.lost == []
    assert steps(engine) == [51.0] * 4
    assert sum(engine.status.column("saves_failed")) >= 4
    assert any("cannot save" in text for text in engine.supervisor.warnings)
    assert any("cannot be replayed" in text for text in engine.supervisor.warnings)
    assert not list((tmp_path / "clients").glob(".*"))


def test_no_space_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(saves, "write", no_space)
    said: list[str] = []
    saver = saves.Saver(tmp_path, 3, 0, said.append)
    for _ in range(2):
        assert not saver.save(saves.State(np.zeros(3)), Tally(), 0.0, {})
    assert saver.failed == 2
    assert len(said) == 1
    assert "No space left" in said[0]
    assert "client 3" in said[0]


class Mad(Unhurried):
    """One client's gradients are not numbers for a few steps."""

    def gradient(self, x: Vector, batch: Batch) -> Slope:
        slope = super().gradient(x, batch)
        return (
            Slope(slope.g * np.nan, slope.loss) if batch.client == 2 and 10 <= batch.counter < 15 else slope
        )


def test_a_step_that_is_not_finite_is_left_out_and_the_client_recovers(tmp_path: Path) -> None:
    setup = live_setup(Swift(), epochs=10)
    setup.__dict__["workload"] = Mad(setup.workload, 0.0)
    with running(setup, tmp_path / "clients") as engine:
        assert engine.wait(LIMIT)
        models = engine.models
        assert engine.discarding() == []
    assert np.isfinite(models).all()
    assert steps(engine) == [51.0] * 4
    assert engine.figures()["discarded"] == 5
    assert engine.figures()["refused"] == 0
    (warning,) = events(engine, "warning")
    assert warning["text"] == "client 2: step 10 gave numbers that are not finite; the step was left out"
    check_replay(setup, tmp_path / "clients", models)


def test_a_value_that_is_not_finite_is_left_out_of_the_mean_of_all(tmp_path: Path) -> None:
    """All clients keep the same model; the client whose values were left out is told."""
    setup = live_setup(AllReduceSgd(SgdRule(momentum=0.5)), method="metropolis", epochs=10)
    setup.__dict__["workload"] = Mad(setup.workload, 0.0)
    with running(setup, tmp_path / "clients") as engine:
        assert engine.wait(LIMIT)
        models = engine.models
        assert engine.status.column("discarded") == [0.0, 0.0, 5.0, 0.0]
    assert np.isfinite(models).all()
    for mine, repeated in zip(models, replay(setup, tmp_path / "clients"), strict=True):
        np.testing.assert_array_equal(mine, models[0])
        np.testing.assert_array_equal(mine, repeated)


def test_a_step_whose_value_and_memory_are_not_finite_counts_once(tmp_path: Path) -> None:
    setup = live_setup(FedAvg(every(1), SgdRule(momentum=0.5)), method="metropolis", epochs=4)
    setup.__dict__["workload"] = Mad(setup.workload, 0.0)
    with running(setup, tmp_path / "clients") as engine:
        assert engine.wait(LIMIT)
        assert engine.status.column("discarded") == [0.0, 0.0, 5.0, 0.0]


class Overflowing:
    """An update rule whose memory overflows in one step, as Adam's second moment can; its moves do not."""

    def init(self, x: Vector) -> Memory:
        return {"count": np.zeros(1)}

    def update(self, g: Vector, x: Vector, step_size: float, memory: Memory) -> tuple[Vector, Memory]:
        count = memory["count"] + 1
        # With an infinite count the client would stand still for ever.
        return -step_size * g / count * (count < 1e9), {"count": np.where(count == 10, np.inf, count)}


def test_a_memory_that_is_not_finite_is_left_out(tmp_path: Path) -> None:
    setup = live_setup(Swift(rule=Overflowing()), epochs=4)
    with running(setup, tmp_path / "clients") as engine:
        assert engine.wait(LIMIT)
        models = engine.models
        assert engine.figures()["discarded"] == 4 * 11  # every step from the tenth of twenty on
        assert engine.discarding() == [0, 1, 2, 3]
    for i, repeated in enumerate(replay(setup, tmp_path / "clients")):
        np.testing.assert_array_equal(models[i], repeated)
        saved = saves.read_all(tmp_path / "clients", i, setup.first_state(setup.workload.initial(0)))
        assert saved[1] == []  # what was saved can be used
        assert saved[0][0].state.memory["count"] == 9


def test_when_everybody_is_lost_the_run_is_over() -> None:
    with running(live_setup(Swift(), epochs=10_000)) as engine:
        under_way(engine)
        kill(engine, 0, 1, 2, 3)
        assert engine.wait(LIMIT)
        assert engine.members() == []


def test_a_client_killed_before_the_start_does_not_hold_up_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first_state = Worker._first_state

    def dies(worker: Worker, launch: Launch, transport: object) -> object:
        if launch.client == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return first_state(worker, launch, transport)  # type: ignore[arg-type]

    monkeypatch.setattr(Worker, "_first_state", dies)
    with running(live_setup(Swift(), epochs=4)) as engine:
        assert engine.wait(LIMIT)
        assert engine.supervisor.lost == [3]
        assert steps(engine)[:3] == [21.0] * 3


def test_a_killed_fork_server_ends_the_run() -> None:
    with running(live_setup(Swift(), epochs=10_000)) as engine:
        under_way(engine)
        mine = pids(engine)
        os.kill(engine.fork_server.pid, signal.SIGKILL)
        assert engine.wait(LIMIT)
        assert sorted(engine.supervisor.lost) == [0, 1, 2, 3]
        assert "(swiftfl-fork), which was killed" in events(engine, "lost")[0]["reason"]
        until(lambda: not any(map(alive, mine)), "the end of every client")


def test_a_fork_server_that_does_not_respond_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swiftfl.engines.live.local.forkserver._PATIENCE", 0.5)
    with running(live_setup(Swift(), epochs=10_000)) as engine:
        under_way(engine)
        mine, server = pids(engine), engine.fork_server.pid
        os.kill(server, signal.SIGSTOP)
        engine.close()
        assert not alive(server)
        until(lambda: not any(map(alive, mine)), "the end of every client")


def test_an_error_in_a_client_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(worker: Worker, launch: Launch, transport: object) -> object:
        raise UserError(f"client {launch.client} cannot")

    monkeypatch.setattr(Worker, "_first_state", fails)
    with running(live_setup(Swift(), epochs=4)) as engine:
        assert engine.wait(LIMIT)
        assert engine.members() == []
        for lost in events(engine, "lost"):
            assert lost["reason"] == f"client {lost['client']} cannot"


@pytest.mark.parametrize(("algorithm", "method"), [(Swift(), "ccs"), (dsgd(), "metropolis")])
def test_a_run_whose_clients_all_died_goes_on_from_their_saves(
    algorithm, method: str, tmp_path: Path
) -> None:
    setup, folder = live_setup(algorithm, method=method, epochs=16, hold=20), tmp_path / "clients"
    with running(setup, folder, save_steps=5) as engine:
        under_way(engine, 12)
        kill(engine, 0, 1, 2, 3)
        assert engine.wait(LIMIT)
    with resumed(setup, folder) as again:
        counters = [start.c for start in again.resume.starts if start is not None]
        assert len(counters) == 4
        assert all(c % 5 == 0 for c in counters)
        assert again.wait(LIMIT)
        assert steps(again) == [81.0] * 4
        live = again.models
    check_replay(setup, folder, live)
