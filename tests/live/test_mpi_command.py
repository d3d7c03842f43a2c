"""`mpiexec -n N swiftfl run ... --engine mpi`: what is recorded, told, stopped and gone on with."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from live_worlds import check_conditions, until
from mpi_jobs import LIMIT, Job, end, needs_mpi, no_job_is_left, pid_of, swiftfl

from forked import forked
from swiftfl.cli.main import run_command
from swiftfl.engines.live.journal import read_incarnations
from swiftfl.errors import UserError
from swiftfl.experiment.recipes import recipe
from swiftfl.experiment.runners import mpi as runner
from swiftfl.transports import launch

__all__ = ["no_job_is_left"]


EXTENSIONS = Path(__file__).parents[2] / "examples" / "extensions" / "extensions.py"


@needs_mpi
def test_the_command_records_and_replays(tmp_path: Path) -> None:
    """As many ranks as a file of edges has clients; models are evaluated while they are trained.

    Every rank imports what `--import` names: an algorithm, a rule and a metric of one's own.
    """
    out, edges = tmp_path / "run", tmp_path / "three.txt"
    edges.write_text("0 1\n1 2\n2 0\n")
    own = ("--import", str(EXTENSIONS), "--algorithm", "one_neighbour", "--rule", "adam", "--lr", "0.002")
    often = ("--edges", str(edges), "--set", "engine.live.evaluate_seconds=0.1", "--epochs", "20")
    options = (*own, *often, "--metrics", "worst_class", "--out", str(out), "--json")
    done = end(swiftfl(3, "run", "digits", "--engine", "mpi", *options))
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["lost"] == []
    assert answer["run"] == str(out)
    assert set(answer["metrics"]) == {"worst_class"}
    recorded = strict_json((out / "config.json").read_text())
    assert recorded["topology"]["clients"] == 3
    assert recorded["imports"] == [str(EXTENSIONS)]
    assert (recorded["algorithm"]["name"], recorded["algorithm"]["rule"]) == ("one_neighbour", "adam")
    assert {"summary.json", "metrics.jsonl", "models.safetensors"} <= {file.name for file in out.iterdir()}
    check_curve(out)
    assert "3 of 3" in forked("replay", out, cwd=tmp_path).stdout  # nothing is registered in this process


def check_curve(out: Path) -> None:
    rows, summary = rows_of(out, "metrics.jsonl"), strict_json((out / "summary.json").read_text())
    assert len(rows) >= 3
    assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)
    assert [row["iteration"] for row in rows] == sorted(row["iteration"] for row in rows)
    assert rows[0]["iteration"] == 0
    assert rows[-1]["iteration"] == summary["iterations"]
    assert rows[-1]["loss"] < 0.7 * rows[0]["loss"]
    assert all(row["accuracy"] is not None for row in rows)


def strict_json(text: str) -> Any:
    """Without NaN and Infinity, which are no JSON."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} in a JSON file")

    return json.loads(text, parse_constant=refuse)


def rows_of(out: Path, name: str) -> list[dict[str, Any]]:
    return [strict_json(line) for line in (out / name).read_text().splitlines()]


UNANNOUNCED = """
from swiftfl.algorithms import algorithm
from swiftfl.client import State
from swiftfl.verbs import Exchange, Gradient

class Unannounced:
    name, in_rounds = "unannounced", False

    def __init__(self, rule):
        self.rule = rule

    def step(self, me, s):
        slope = yield from Gradient(s.x, me.batch(s.c))
        yield from Exchange(slope.g, me.neighbours, s.c)
        return State(s.x, s.c + 1, s.memory)

@algorithm("unannounced")
def make(context) -> Unannounced:
    return Unannounced(context.rule)
"""


@needs_mpi
@pytest.mark.slow
def test_rounds_that_are_not_announced_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(UNANNOUNCED)
    own = ("--import", str(file), "--algorithm", "unannounced", "--out", str(tmp_path / "run"))
    done = end(swiftfl(3, "run", "digits", "--engine", "mpi", *own))
    assert done.returncode == 2
    assert done.stderr.count("says in_rounds = False, but its step yields Exchange") == 1


@needs_mpi
@pytest.mark.slow
def test_a_mistake_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "something").write_text("")
    done = end(swiftfl(2, "run", "digits", "--topology", "path", "--engine", "mpi", "--out", str(tmp_path)))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("swiftfl: ") == 1
    assert "not an empty folder" in done.stderr


def needs_ranks(said: str) -> None:
    assert said.strip().splitlines()[-1].startswith("swiftfl: engine mpi needs a rank for each of 16")
    assert "mpiexec -n 16" in said


def test_without_mpiexec_it_says_how(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such a process is a job of one rank; `test_a_process_alone` is one."""
    monkeypatch.setattr(runner, "world", lambda: SimpleNamespace(rank=0, size=1))
    assert run_command(["run", "digits", "--engine", "mpi"]) == 2
    needs_ranks(capsys.readouterr().err)


@needs_mpi
@pytest.mark.slow
def test_a_process_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "swiftfl", "run", "digits", "--engine", "mpi"]
    environment = {**launch.environment(), "OMPI_MCA_btl_sm_backing_directory": str(tmp_path)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 2
    needs_ranks(done.stderr)
    assert list(tmp_path.iterdir()) == []  # no memory that is shared with nobody stays


def test_without_mpi4py_it_says_how(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from swiftfl.transports import mpi

    mpi._mpi.cache_clear()
    mpi.world.cache_clear()
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    assert run_command(["run", "digits", "--engine", "mpi"]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert "pip install 'swiftfl[mpi]'" in said[0]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(launch, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="swiftfl\\[mpi\\]"):
        launch.mpiexec()


# --- stopped ranks and stopped runs --------------------------------------------------------------


UNHURRIED = """
import os, time
from torch import nn

class Unhurried(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def forward(self, x):
        if self.training and "OMPI_COMM_WORLD_RANK" in os.environ:
            time.sleep(0.02)
        return self.layers(x)
"""
"""A model whose gradients take a moment on a rank, and no longer than others in a replay."""


def unhurried(folder: Path, algorithm: str, epochs: int, every: float = 2.0, **more: Any) -> Path:
    """A configuration that learns, with time to do something to the run."""
    code = folder / "unhurried.py"
    code.write_text(UNHURRIED)
    changes = {"algorithm.name": algorithm, "engine.name": "mpi", "engine.epochs": epochs}
    changes |= {"model.name": f"{code}:Unhurried", "engine.live.evaluate_seconds": every}
    config = recipe("digits").with_changes({**changes, **more})
    file = folder / "config.json"
    file.write_text(config.model_dump_json())
    return file


def records(out: Path) -> list[int]:
    """How much each client has written down so far: a line per step."""
    return [file.stat().st_size for file in sorted((out / "clients").glob("client-*.jsonl"))]


def under_way(job: Job, out: Path, n: int) -> None:
    """Wait until every client has written down some more steps."""
    before = records(out)
    before += [0] * (n - len(before))

    def ready() -> bool:
        now = records(out)
        return len(now) == n and min(size - then for size, then in zip(now, before, strict=True)) > 500

    until(lambda: job.poll() is not None or ready(), "steps", LIMIT)
    assert job.poll() is None, job.communicate()


@needs_mpi
@pytest.mark.slow
def test_others_go_on_while_a_rank_is_stopped(tmp_path: Path) -> None:
    out = tmp_path / "run"
    job = swiftfl(4, "run", str(unhurried(tmp_path, "swift", 20)), "--out", str(out), "--json")
    under_way(job, out, 4)
    stopped = pid_of(2, out)
    os.kill(stopped, signal.SIGSTOP)
    time.sleep(0.5)
    before = records(out)
    time.sleep(3.0)
    grown = [now - then for now, then in zip(records(out), before, strict=True)]
    os.kill(stopped, signal.SIGCONT)
    assert grown[2] == 0
    assert min(grown[i] for i in (0, 1, 3)) > 500, "somebody waited for the one that was stopped"
    done = end(job)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["lost"] == []


def saves(folder: Path) -> int:
    return len(list((folder / "run" / "clients").glob("client-*.safetensors")))


def stopped_job(folder: Path, algorithm: str, number: int) -> subprocess.CompletedProcess[str]:
    """A job of three ranks whose launcher is sent a signal in mid-run."""
    out = folder / "run"
    job = swiftfl(3, "run", str(unhurried(folder, algorithm, 2000)), "--out", str(out))
    under_way(job, out, 3)
    job.send_signal(number)
    return end(job)


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["swift", "dsgd"])
def test_a_run_that_is_stopped_says_how_to_go_on(tmp_path: Path, algorithm: str) -> None:
    done = stopped_job(tmp_path, algorithm, signal.SIGUSR1)
    told = f"swiftfl: stopped; to go on: mpiexec -n 3 swiftfl resume {tmp_path / 'run'}"
    assert done.stderr.count(told) == 1
    assert done.returncode == 130
    assert saves(tmp_path) >= 3


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["term", "ctrl_c"])
def test_ctrl_c_leaves_a_run_that_can_go_on(tmp_path: Path, number: int) -> None:
    """Open MPI leaves its ranks a quarter of a second and passes nothing on: how to go on was told before."""
    done = stopped_job(tmp_path, "swift", number)
    assert f"if this is stopped: mpiexec -n 3 swiftfl resume {tmp_path / 'run'}" in done.stderr
    assert done.returncode != 0
    assert saves(tmp_path) >= 3


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["swift", "dsgd"])
def test_a_run_is_resumed_twice_and_replayed(
    tmp_path: Path, algorithm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its clock goes on, every session is counted once, and the whole run is repeated bit for bit."""
    out = tmp_path / "run"
    job = swiftfl(3, "run", str(unhurried(tmp_path, algorithm, 8, every=0.3)), "--out", str(out))
    for _ in range(2):
        under_way(job, out, 3)
        job.send_signal(signal.SIGUSR1)
        stopped = end(job)
        assert stopped.returncode == 130, stopped.stderr
        job = swiftfl(3, "resume", str(out))
    done = end(job)
    assert done.returncode == 0, done.stderr
    events, rows = rows_of(out, "events.jsonl"), rows_of(out, "metrics.jsonl")
    assert sum(event["event"] == "resume" for event in events) == 2
    assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)
    assert [row["iteration"] for row in rows] == sorted(row["iteration"] for row in rows)
    sessions = [each.session for i in range(3) for each in read_incarnations(out / "clients", i, 3)]
    assert sorted(sessions) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    check_replay(out, 3, capsys)


def check_replay(out: Path, n: int, capsys: pytest.CaptureFixture[str]) -> None:
    """All models, which have learnt something, are repeated bit for bit."""
    rows = rows_of(out, "metrics.jsonl")
    assert rows[-1]["loss"] < 0.8 * rows[0]["loss"]
    assert run_command(["replay", str(out)]) == 0
    assert f"{n} of {n}" in capsys.readouterr().out


# --- planned changes -----------------------------------------------------------------------------

CHANGES = [
    {"iteration": 60, "event": "edge_down", "edge": [0, 1]},
    {"iteration": 60, "event": "edge_up", "edge": [0, 2]},
    {"iteration": 120, "event": "join", "client": 3},
]


def check_changes(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    happened = [event for event in rows_of(out, "events.jsonl") if event["event"] in ("renew", *KINDS)]
    assert [event["event"] for event in happened] == ["edge_down", "edge_up", "renew", "join", "renew"]
    assert [event["checked"] for event in happened if event["event"] == "renew"] == ["abcd", "abcd"]
    check_conditions(out / "clients", 4, {(1, 2), (2, 3), (0, 3), (0, 2)}, {0, 1, 2, 3})
    first = read_incarnations(out / "clients", 3, 4)[0]
    assert first.how == "model"
    assert first.source[1] > 0, "it started from a model that somebody had trained"
    assert strict_json((out / "summary.json").read_text())["lost"] == []
    check_replay(out, 4, capsys)


KINDS = ("edge_down", "edge_up", "join", "leave")


@needs_mpi
@pytest.mark.slow  # with threads as ranks in test_planned_changes.py
@pytest.mark.parametrize("algorithm", ["swift", "dsgd"])
def test_edges_change_and_a_rank_joins(
    tmp_path: Path, algorithm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = unhurried(tmp_path, algorithm, 6, **{"engine.network": {"changes": CHANGES}})
    out = tmp_path / "run"
    done = end(swiftfl(4, "run", str(config), "--out", str(out)))
    assert done.returncode == 0, done.stderr
    check_changes(out, capsys)


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["swift", "dsgd"])
def test_a_run_with_changes_is_resumed(
    tmp_path: Path, algorithm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stopped before the join, and after it."""
    config = unhurried(tmp_path, algorithm, 8, **{"engine.network": {"changes": CHANGES}})
    out = tmp_path / "run"
    job = swiftfl(4, "run", str(config), "--out", str(out))
    for n in (3, 4):
        under_way(job, out, n)
        job.send_signal(signal.SIGUSR1)
        stopped = end(job)
        assert stopped.returncode == 130, stopped.stderr
        job = swiftfl(4, "resume", str(out))
    done = end(job)
    assert done.returncode == 0, done.stderr
    check_changes(out, capsys)


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["swift", "dsgd", "allreduce"])
def test_ranks_leave(tmp_path: Path, algorithm: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Also the first, which still leads the run."""
    changes = [{"iteration": 60 + 60 * i, "event": "leave", "client": i} for i in (0, 2)]
    config = unhurried(tmp_path, algorithm, 6, **{"engine.network": {"changes": changes}})
    out = tmp_path / "run"
    done = end(swiftfl(4, "run", str(config), "--out", str(out), "--json"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["lost"] == []
    events = [event for event in rows_of(out, "events.jsonl") if event["event"] in ("leave", "renew")]
    assert [event["event"] for event in events] == ["leave", "renew"] * 2
    assert [event["clients"] for event in events if event["event"] == "renew"] == [3, 2]
    check_replay(out, 4, capsys)
