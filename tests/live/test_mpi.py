"""Runs under mpiexec with a few ranks: normal, TCP only, no single copies, stopped and killed ranks.

All on this machine, each bounded in time. Where MPI is not installed they are skipped.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from swiftfl.cli.main import run_command
from swiftfl.errors import UserError
from swiftfl.transports import launch
from swiftfl.transports.conformance import KINDS, battery

HERE = Path(__file__).parent
LIMIT = 240.0
TCP = ("--mca", "pml", "ob1", "--mca", "btl", "tcp,self")
NO_SINGLE_COPY = ("--mca", "smsc", "^cma")
SURVIVE = ("--with-ft", "ulfm")


def _missing() -> str | None:
    try:
        return "these options are Open MPI's" if launch.is_mpich() else None
    except (UserError, OSError, subprocess.SubprocessError) as error:
        return str(error)


MISSING = _missing()
needs_mpi = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


def under_mpi(n: int, program: list[str], options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run it to its end; whatever is left of it after the limit is killed, all ranks with it."""
    path = os.pathsep.join([str(HERE), str(HERE.parent)])
    started = subprocess.Popen(
        launch.command(n, program, options),
        env={**launch.environment(), "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = started.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        started.send_signal(signal.SIGTERM)  # mpiexec ends its ranks
        try:
            out, err = started.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            out, err = started.communicate()
        pytest.fail(f"not over after {LIMIT:g} s:\n{out}\n{err}")
    return subprocess.CompletedProcess(program, started.returncode, out, err)


def run(names: str, mishap: str = "", options: tuple[str, ...] = (), n: int = 3) -> dict[str, dict[str, Any]]:
    """What the recorder tells of each algorithm's run."""
    done = under_mpi(n, [str(HERE / "mpi_program.py"), names, mishap], options)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0, done.stderr
    assert [answer["algorithm"] for answer in answers] == names.split(","), done.stderr
    for answer in answers:
        answer["longest"] = [float(t) for t in re.findall(r"longest step ([\d.]+) s", done.stderr)]
    return {answer["algorithm"]: answer for answer in answers}


def check(answer: dict[str, Any], lost: list[int], n: int = 3) -> None:
    assert answer["lost"] == lost
    assert all(answer["steps"][i] == 150 for i in range(n) if i not in lost)
    assert answer["loss"] < 0.6 * answer["start"]
    assert answer["refused"] == 0


@needs_mpi
@pytest.mark.parametrize(
    "options",
    [(), TCP, pytest.param(NO_SINGLE_COPY, marks=pytest.mark.slow)],
    ids=["normal", "tcp", "no_single_copy"],
)
def test_every_algorithm_runs(options: tuple[str, ...]) -> None:
    answers = run("swift,dsgd,adpsgd,allreduce", options=options)
    for answer in answers.values():
        check(answer, lost=[])
    assert answers["swift"]["split"]["waiting"] == 0
    assert answers["dsgd"]["split"]["waiting"] > 0


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("options", [(), TCP], ids=["normal", "tcp"])
def test_a_stopped_rank_blocks_nobody(options: tuple[str, ...]) -> None:
    """It is stopped for ever: the others finish, and give it up when they have."""
    answer = run("swift", "stop", options)["swift"]
    check(answer, lost=[1])
    assert answer["renewals"] == 1
    assert max(answer["longest"]) < 2.5, "a step waited for the client that was stopped"


@needs_mpi
@pytest.mark.slow
def test_a_rank_that_was_stopped_goes_on() -> None:
    answer = run("swift", "pause")["swift"]
    check(answer, lost=[])
    assert sorted(answer["longest"])[-2] < 2.5  # all but the one that slept


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("options", [(), TCP], ids=["normal", "tcp"])
@pytest.mark.parametrize("name", ["swift", "dsgd"])
def test_survivors_of_a_killed_rank_go_on(name: str, options: tuple[str, ...]) -> None:
    answer = run(name, "kill", (*SURVIVE, *options))[name]
    check(answer, lost=[1])
    assert answer["recorder"] == 0


@needs_mpi
@pytest.mark.slow
def test_another_rank_records_if_the_first_was_killed() -> None:
    answer = run("swift", "kill0", SURVIVE)["swift"]
    check(answer, lost=[0])
    assert answer["recorder"] == 1


# --- the command ---------------------------------------------------------------------------------


def swiftfl(n: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    return under_mpi(n, ["-m", "swiftfl", *arguments])


@needs_mpi
def test_the_command_records_and_replays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    done = swiftfl(3, "run", "digits", "--engine", "mpi", "--epochs", "2", "--out", str(out), "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["lost"] == []
    assert answer["run"] == str(out)
    assert json.loads((out / "config.json").read_text())["topology"]["clients"] == 3
    assert {"summary.json", "metrics.jsonl", "models.safetensors"} <= {file.name for file in out.iterdir()}
    assert run_command(["replay", str(out)]) == 0
    assert "3 of 3" in capsys.readouterr().out


@needs_mpi
@pytest.mark.slow
def test_a_mistake_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "something").write_text("")
    done = swiftfl(2, "run", "digits", "--topology", "path", "--engine", "mpi", "--out", str(tmp_path))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("swiftfl: ") == 1
    assert "not an empty folder" in done.stderr


@needs_mpi
def test_without_mpiexec_it_says_how() -> None:
    command = [sys.executable, "-m", "swiftfl", "run", "digits", "--engine", "mpi"]
    done = subprocess.run(
        command, env=launch.environment(), capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith("swiftfl: engine mpi needs a rank for each of 16")
    assert "mpiexec -n 16" in done.stderr


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


@needs_mpi
def test_the_battery() -> None:
    reports = {report.name: report for report in battery(KINDS["mpi"])}
    failed = {name: report.detail for name, report in reports.items() if report.passed is False}
    assert not failed
    assert {name for name, report in reports.items() if report.passed is None} == {
        "killed_peers", "cells_survive",
    }  # fmt: skip
