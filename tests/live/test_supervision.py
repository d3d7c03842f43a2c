"""What a supervisor must survive: strange signals, long errors, many clients, blocked ones, itself."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from live_worlds import (
    LIMIT,
    Unhurried,
    alive,
    check_replay,
    events,
    last_states,
    let_go,
    live_setup,
    pids,
    resumed,
    running,
    steps,
    stop,
    under_way,
    until,
)

from swiftfl.algorithms import Gossip, Matcha, Swift, dsgd, pasgd
from swiftfl.engines import Setup
from swiftfl.engines.live.local.engine import LocalEngine
from swiftfl.engines.live.local.forkserver import allow_descriptors
from swiftfl.engines.live.resume import find_resume_point
from swiftfl.engines.live.status import FINISHED, RUNNING
from swiftfl.engines.live.supervisor import Supervisor
from swiftfl.errors import UserError
from swiftfl.graph import ring
from swiftfl.graph.matchings import matching_plan
from swiftfl.sample import Batch, Slope
from swiftfl.vector import Vector

PATIENCE = 3.0
"""Seconds until a client is given up that does not stop: enough for the others to stop on a busy machine."""


class Failing(Unhurried):
    """Client 1 fails at step 5, with a message of some length."""

    message = "the data are gone"

    def gradient(self, x: Vector, batch: Batch) -> Slope:
        if batch.client == 1 and batch.counter == 5:
            raise RuntimeError(self.message)
        return super().gradient(x, batch)


class Blocking(Unhurried):
    """Client 1's gradient of step 8 never returns, unless that is forgiven."""

    forgiven = False

    def gradient(self, x: Vector, batch: Batch) -> Slope:
        if batch.client == 1 and batch.counter == 8 and not self.forgiven:
            threading.Event().wait()
        return super().gradient(x, batch)


def with_workload(setup: Setup, workload: Unhurried) -> Setup:
    setup.__dict__["workload"] = workload
    return setup


# --- how clients end -------------------------------------------------------------------------------


def test_a_signal_without_a_name_is_a_loss_like_any_other() -> None:
    setup = live_setup(Swift(), epochs=20, hold=15)
    with running(setup) as engine:
        under_way(engine)
        os.kill(pids(engine)[1], 37)
        until(lambda: engine.supervisor.lost == [1], "the loss")
        let_go(setup)
        assert engine.wait(LIMIT)
        assert [row["reason"] for row in events(engine, "lost")] == ["killed by signal 37"]
        assert [steps(engine)[i] for i in engine.members()] == [101.0] * 3


def test_a_loss_says_which_error_it_was_and_where() -> None:
    setup = live_setup(Swift(), epochs=4)
    with running(with_workload(setup, Failing(setup.workload, 0.0))) as engine:
        assert engine.wait(LIMIT)
        (lost,) = events(engine, "lost")
    assert lost["client"] == 1
    assert lost["reason"].startswith("RuntimeError: the data are gone (test_supervision.py, line ")


def test_a_very_long_error_is_cut() -> None:
    setup = live_setup(Swift(), epochs=4)
    workload = Failing(setup.workload, 0.0)
    workload.message = "x" * 200_000
    with running(with_workload(setup, workload)) as engine:
        assert engine.wait(LIMIT)
        (lost,) = events(engine, "lost")
    assert lost["reason"].startswith("RuntimeError: xxx")
    assert len(lost["reason"]) < 3000


def test_clients_leave_the_signals_of_a_job_to_their_engine() -> None:
    with running(live_setup(Swift(), epochs=10_000)) as engine:
        under_way(engine)
        assert engine.fork_server is not None
        for pid in [*pids(engine), engine.fork_server.pid]:
            for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT):
                os.kill(pid, number)
        before = steps(engine)
        until(lambda: min(np.subtract(steps(engine), before)) > 5, "further steps of everybody")
        assert events(engine, "lost") == []


def test_isolated_clients_are_named() -> None:
    with running(live_setup(Swift(), n=6, epochs=10_000)) as engine:
        under_way(engine)
        for i in (0, 2, 4):
            os.kill(pids(engine)[i], signal.SIGKILL)
        until(lambda: len(engine.supervisor.lost) == 3, "three losses")
        until(lambda: {row["client"] for row in events(engine, "warning")} == {1, 3, 5}, "three warnings")
        assert "client 3 has lost all its neighbours and trains alone" in engine.supervisor.warnings


# --- a supervisor that fails -----------------------------------------------------------------------


@pytest.mark.parametrize(("algorithm", "method"), [(Swift(), "ccs"), (dsgd(), "metropolis")])
def test_a_failing_supervisor_is_an_error_and_the_run_can_be_resumed(
    algorithm, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(supervisor: Supervisor, living: object) -> None:
        if supervisor.status.started and min(supervisor.status.column("c")) > 12:
            raise ZeroDivisionError("a mistake of ours")
        tick(supervisor, living)  # type: ignore[arg-type]

    tick = Supervisor.tick
    setup, folder = live_setup(algorithm, method=method, epochs=16, hold=20), tmp_path / "clients"
    with monkeypatch.context() as patched, running(setup, folder, save_steps=5) as engine:
        patched.setattr(Supervisor, "tick", fails)
        with pytest.raises(
            UserError, match="supervisor of the run failed: ZeroDivisionError: a mistake of ours"
        ):
            engine.wait(LIMIT)
        mine = pids(engine)
    until(lambda: not any(map(alive, mine)), "the end of every client")
    with resumed(setup, folder) as engine:
        assert engine.resume.iteration >= 4 * 4
        assert engine.wait(LIMIT)
        assert steps(engine) == [81.0] * 4


# --- many clients ----------------------------------------------------------------------------------


def test_descriptors_are_allowed_as_they_are_needed() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
        allow_descriptors(150)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 200
        allow_descriptors(300)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 300
        with pytest.raises(UserError, match=r"needs \d+ open files, and this machine allows"):
            allow_descriptors(hard + 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


MANY = """
from live_worlds import LIMIT, events, live_setup, running, steps
from swiftfl.algorithms import Swift

with running(live_setup(Swift(), n=520, seconds=0.0, steps_per_epoch=1, epochs=2)) as engine:
    assert engine.wait(4 * LIMIT)
    assert events(engine, "lost") == []
    assert steps(engine) == [3.0] * 520
"""


@pytest.mark.slow
@pytest.mark.usefixtures("unmeasured")
def test_five_hundred_and_twenty_clients_start_and_finish() -> None:
    """In a program of its own: 520 processes that report their coverage take minutes."""
    tests = Path(__file__).parent
    paths = f"{tests}:{tests.parent}:{os.environ.get('PYTHONPATH', '')}"
    environment = {**os.environ, "PYTHONPATH": paths}
    subprocess.run([sys.executable, "-c", MANY], env=environment, timeout=5 * LIMIT, check=True)


def test_a_machine_that_cannot_start_a_client_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from swiftfl.engines.live.local import forkserver

    fork, here = forkserver.fork_child, os.getpid()

    def some() -> int:
        if os.getpid() != here and len(os.listdir("/proc/self/fd")) > 15:  # noqa: PTH208
            raise OSError(11, "Resource temporarily unavailable")
        return fork()

    monkeypatch.setattr(forkserver, "fork_child", some)
    with (
        running(live_setup(Swift(), n=30, epochs=10_000)) as engine,
        pytest.raises(UserError, match=r"client \d+ of 30 cannot be started: Resource temporarily"),
    ):
        engine.wait(LIMIT)


# --- clients that are blocked ----------------------------------------------------------------------


def test_a_blocked_client_is_given_up_when_all_others_have_finished() -> None:
    setup = live_setup(Swift(), epochs=4)
    options = {"patience": 1.0, "stall_seconds": 0.5}
    with running(with_workload(setup, Blocking(setup.workload, 0.0)), **options) as engine:
        assert engine.wait(LIMIT)
        (lost,) = events(engine, "lost")
    assert lost["client"] == 1
    assert "no progress" in lost["reason"]
    # On a busy machine others may be reported, too.
    assert any("client 1 has made no progress for" in text for text in engine.supervisor.warnings)
    assert not engine.stopped
    assert [steps(engine)[i] for i in engine.members()] == [21.0] * 3


def test_a_client_that_seems_to_wait_is_given_up_when_all_others_have_finished() -> None:
    """Such as one that was stopped in its last exchange: nobody is left whom it could wait for."""
    engine, killed = LocalEngine(live_setup(dsgd(), method="metropolis", epochs=4)), []
    engine.kill = killed.append  # type: ignore[method-assign]
    supervisor, status = engine.supervisor, engine.status
    status.go()
    for i in range(4):
        status.enter(i, RUNNING if i == 1 else FINISHED)
    status.set_waits(1, True)
    supervisor.tick(range(4))
    assert killed == []
    supervisor.patience.watchdog._since[1] -= 11.0
    supervisor.tick(range(4))
    assert killed == [1]


def test_a_client_that_is_stopped_while_it_waits_does_not_cost_the_others_their_saves(tmp_path: Path) -> None:
    """In rounds everybody waits then, and it has to be found out for whom."""
    setup, folder = live_setup(dsgd(), method="metropolis", epochs=10_000), tmp_path / "clients"
    with running(setup, folder, patience=PATIENCE, stall_seconds=1.0) as engine:
        under_way(engine)
        pid = pids(engine)[1]

        def stopped_while_it_waits() -> bool:
            os.kill(pid, signal.SIGSTOP)
            until(lambda: engine.is_stopped(1), "the stop")
            if engine.status.waits(1):
                return True
            os.kill(pid, signal.SIGCONT)
            return False

        until(stopped_while_it_waits)
        until(lambda: any("client 1 has made no progress" in text for text in engine.supervisor.warnings))
        stop(engine)
        (lost,) = events(engine, "lost")
        assert (lost["client"], lost["reason"]) == (1, f"did not stop within {PATIENCE:g} s")
    setup.__dict__["epochs"] = 4
    point = find_resume_point(folder, setup)
    assert all(start is not None and start.c > 3 for start in point.starts)
    assert point.notes[0].startswith("clients [1] have no save of round")


@pytest.mark.parametrize(
    ("algorithm", "method", "all_others_finish"),
    [
        (Swift(), "ccs", True),
        pytest.param(Swift(), "ccs", False, marks=pytest.mark.slow),
        pytest.param(dsgd(), "metropolis", True, marks=pytest.mark.slow),
        (dsgd(), "metropolis", False),
    ],
)
def test_a_blocked_client_does_not_keep_the_others_from_stopping(
    algorithm, method: str, all_others_finish: bool, tmp_path: Path
) -> None:
    epochs = 4 if all_others_finish else 400
    setup, folder = live_setup(algorithm, method=method, epochs=epochs), tmp_path / "clients"
    workload = Blocking(setup.workload, 0.0)
    with running(with_workload(setup, workload), folder, save_steps=5, patience=PATIENCE) as engine:
        until(lambda: steps(engine)[1] == 8.0, "the step that blocks")
        if all_others_finish and not setup.algorithm.in_rounds:
            until(lambda: [steps(engine)[i] for i in (0, 2, 3)] == [21.0] * 3, "the end of the others")
        stop(engine)
        (lost,) = events(engine, "lost")
        assert lost["client"] == 1
        assert lost["reason"] == f"did not stop within {PATIENCE:g} s"
    workload.forgiven = True
    if not all_others_finish:
        setup.__dict__["epochs"] = 8
    with resumed(setup, folder) as engine:
        assert all(start is not None and start.c >= 5 for start in engine.resume.starts)
        assert engine.wait(LIMIT)
        assert engine.supervisor.lost == []
        assert not engine.stopped
        live = engine.models
    check_replay(setup, folder, live)


# --- the clock -------------------------------------------------------------------------------------


def test_the_clock_goes_on_after_a_resume(tmp_path: Path) -> None:
    setup, folder = live_setup(Swift(), epochs=16, hold=15), tmp_path / "clients"
    with running(setup, folder) as engine:
        assert engine.now == 0.0
        under_way(engine, 10)
        engine.stop()
        assert engine.wait(LIMIT)
        first = engine.now
        computed = engine.seconds()["compute"]
    assert first > 0.05
    with resumed(setup, folder, elapsed=first) as engine:
        assert engine.now >= first
        assert engine.iteration == engine.resume.iteration
        assert engine.wait(LIMIT)
        assert engine.now > first
        assert engine.epochs() == [16.0] * 4
        assert all(now > before for now, before in zip(engine.seconds()["compute"], computed, strict=True))
        assert engine.figures()["wall_seconds"] == engine.now


# --- replay after kills ----------------------------------------------------------------------------


def in_rounds(name: str, n: int, epochs: int = 40, hold: int | None = None, seconds: float = 0.002) -> Setup:
    graph = ring(n)
    algorithm = {
        "dsgd": dsgd(),
        "pasgd": pasgd(2),
        "matcha": Matcha(matching_plan(graph, 0.7)),
        "gossip": Gossip(graph),
    }[name]
    return live_setup(algorithm, n=n, seconds=seconds, method="metropolis", epochs=epochs, hold=hold)


@pytest.mark.parametrize("name", ["dsgd", "pasgd", "matcha", "gossip"])
def test_rounds_are_replayed_after_several_kills(name: str, tmp_path: Path) -> None:
    setup, folder = in_rounds(name, 6, hold=100), tmp_path / "clients"
    with running(setup, folder) as engine:
        for victim, at in ((1, 20), (4, 60), (2, 100)):
            until(lambda at=at: max(steps(engine)) >= at, f"step {at}")  # type: ignore[misc]
            os.kill(pids(engine)[victim], signal.SIGKILL)
        until(lambda: len(engine.supervisor.lost) == 3, "three losses")
        let_go(setup)
        assert engine.wait(LIMIT)
        assert sorted(engine.supervisor.lost) == [1, 2, 4]
        live, members = engine.models, engine.members()
    check_replay(setup, folder, live, members)


def test_rounds_are_replayed_after_kills_and_restarts(tmp_path: Path) -> None:
    setup, folder = in_rounds("dsgd", 5, epochs=300, seconds=0.01), tmp_path / "clients"
    with running(setup, folder, restart_lost=True, save_steps=20) as engine:
        for count, victim in enumerate((1, 3, 1), start=1):
            before = max(steps(engine))
            until(lambda c=before: min(steps(engine)) >= c + 30, "further rounds")  # type: ignore[misc]
            os.kill(engine.pid(victim), signal.SIGKILL)
            until(lambda count=count: len(events(engine, "join")) == count, "the return")  # type: ignore[misc]
        until(lambda: min(steps(engine)) > engine.supervisor.renewed_from + 10, "rounds of all")
        stop(engine)
        assert engine.supervisor.lost == []
    check_replay(setup, folder, [state.x for state in last_states(setup, folder)])


def test_a_client_that_is_back_after_the_last_round_stays_lost(tmp_path: Path) -> None:
    setup, folder = in_rounds("dsgd", 5), tmp_path / "clients"
    with running(setup, folder, restart_lost=True, save_steps=20) as engine:
        until(lambda: max(steps(engine)) >= 195, "the last rounds")
        os.kill(engine.pid(2), signal.SIGKILL)
        assert engine.wait(LIMIT)
        live, members = engine.models, engine.members()
        assert engine.supervisor.lost in ([], [2])  # it may have finished just before
    check_replay(setup, folder, live, members)


def test_who_was_lost_long_before_a_stop_comes_back_from_a_neighbours_save(tmp_path: Path) -> None:
    setup, folder = in_rounds("dsgd", 5, hold=60), tmp_path / "clients"
    with running(setup, folder, save_steps=10) as engine:
        under_way(engine, 15)
        os.kill(engine.pid(2), signal.SIGKILL)
        until(lambda: max(steps(engine)) >= 50, "step 50")
        stop(engine)
    point = find_resume_point(folder, setup)
    starts = [start for start in point.starts if start is not None]
    assert len({start.c for start in starts}) == 1
    assert starts[2].client in (1, 3)
    assert point.notes == (f"clients [2] have no save of round {starts[0].c} and start from a neighbour's",)
    let_go(setup)
    with running(setup, folder, point) as engine:
        assert engine.wait(LIMIT)
        live = engine.models
    check_replay(setup, folder, live)
