"""Facts of real clients: their own clocks, a client that is killed and comes back, ranks that are watched."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from mpi_jobs import end, needs_mpi, no_job_is_left, pid_of, start, swiftfl  # noqa: F401

from swiftfl.errors import UserError
from swiftfl.experiment.recipes import digits
from swiftfl.experiment.run import run
from swiftfl.record.facts import ClientState, FactsReader
from swiftfl.record.facts.joining import duration
from terminals import Terminal

LIMIT = 90.0
RUN = [sys.executable, "-m", "swiftfl", "run", "digits", "--engine", "local", "--clients", "4"]


def check(folder: Path, steps: int) -> None:
    """Rows are what clients counted, in the order of time."""
    reader = FactsReader(folder)
    rows, clients = reader.rows(), reader.clients()
    assert reader.layout is not None
    assert reader.layout.clock == "wall"
    assert len(rows) == clients["steps"].sum() == steps
    for name in ("compute", "waiting", "communication"):
        spent = np.bincount(rows["client"], rows[name].astype(float), 4)
        assert spent == pytest.approx(clients[name], rel=1e-4, abs=1e-6)
    for i in range(4):
        own = np.sort(rows[rows["client"] == i], order="start")
        assert np.all(own["start"][1:] >= (own["start"] + duration(own))[:-1] - 1e-4)
        assert own["start"][0] >= 0
        assert own["start"][-1] < clients["time"][i]
    assert clients["state"].tolist() == [ClientState.FINISHED] * 4
    edges = reader.edges()
    assert np.all(edges["version"] > 0)
    assert np.all(edges["since"] <= clients["time"][0])


@pytest.mark.parametrize("algorithm", ["swift", "dsgd"])
def test_local_clients_write_their_steps(tmp_path: Path, algorithm: str) -> None:
    changes = {"engine.name": "local", "engine.epochs": 3, "topology.clients": 4, "algorithm.name": algorithm}
    result = run(digits().with_changes(changes), tmp_path / "run")
    check(tmp_path / "run", result.summary["iterations"])
    ages = FactsReader(tmp_path / "run").rows()["age"]
    assert np.isfinite(ages).any()
    if algorithm == "dsgd":
        assert result.summary["mean_age_of_clients"] == [1.0] * 4


def client_process(i: int, folder: Path) -> int:
    """The process of client i of a run, when it is there."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (
                str(folder) in (process / "cmdline").read_text()
                and (process / "comm").read_text() == f"swiftfl-{i}\n"
            ):
                return int(process.name)
    return 0


def until(folder: Path, client: int, state: ClientState) -> None:
    end_of_patience = time.monotonic() + LIMIT
    reader = FactsReader(folder)
    while time.monotonic() < end_of_patience:
        with contextlib.suppress(UserError, IndexError):
            if reader.clients()["state"][client] == state:
                return
        time.sleep(0.02)
    raise AssertionError(f"client {client} was never {state.name}")


@pytest.mark.slow
def test_a_killed_client_is_lost_and_then_back(tmp_path: Path) -> None:
    out = tmp_path / "run"
    line = [*RUN, "--epochs", "4000", "--restart-lost", "--out", str(out)]
    with subprocess.Popen(line, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as program:
        until(out, 1, ClientState.RUNNING)
        os.kill(client_process(1, out), signal.SIGKILL)
        until(out, 1, ClientState.BACK)
        before = FactsReader(out).clients()["steps"][1]
        deadline = time.monotonic() + LIMIT
        while FactsReader(out).clients()["steps"][1] <= before and time.monotonic() < deadline:
            time.sleep(0.05)
        program.send_signal(signal.SIGINT)
        _, shown = program.communicate(timeout=LIMIT)
    assert "client 1 lost: " in shown
    assert "client 1 is started again" in shown
    assert "\x1b" not in shown
    reader = FactsReader(out)
    assert reader.clients()["state"][1] == ClientState.STOPPED
    own = np.sort(reader.rows()[reader.rows()["client"] == 1], order="start")
    assert len(own) > 0


@pytest.mark.slow
@needs_mpi
def test_four_ranks_are_watched_in_a_terminal_and_say_plain_lines(tmp_path: Path) -> None:
    out = tmp_path / "run"
    job = swiftfl(
        4, "run", "digits", "--engine", "mpi", "--clients", "4", "--epochs", "120", "--out", str(out)
    )
    watching = [sys.executable, "-m", "swiftfl", "watch", str(out), "--wait"]
    with Terminal(watching, 60) as terminal:
        terminal.until(lambda text: "clients: 4 running" in text and " steps/s" in text)
        text = terminal.to_end(LIMIT)
        assert "finished" in text
        assert "clients: 4 finished" in text
    done = end(job)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    check(out, 4 * 120 * 23)


@pytest.mark.slow
@needs_mpi
def test_the_last_word_is_there_though_the_rank_that_wrote_it_was_killed(tmp_path: Path) -> None:
    out = tmp_path / "run"
    line = ["run", "digits", "--engine", "mpi", "--clients", "4", "--epochs", "150", "--out", str(out)]
    job = start(4, ["-m", "swiftfl", *line], ("--with-ft", "ulfm"))
    until(out, 2, ClientState.RUNNING)
    os.kill(pid_of(0, out), signal.SIGKILL)
    end(job)
    assert (out / "summary.json").is_file()
    states = FactsReader(out).clients()["state"].tolist()
    assert states == [ClientState.LOST, *[ClientState.FINISHED] * 3]
