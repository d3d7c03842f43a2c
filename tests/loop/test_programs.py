"""The examples of an own loop, as a user starts them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import swiftfl
from swiftfl.errors import UserError
from swiftfl.loop.federation import federation
from swiftfl.loop.launcher import Launcher
from swiftfl.transports import launch

ROOT = Path(__file__).parents[2]
SOURCE = Path(swiftfl.__file__).parents[1]
LOOP = ROOT / "examples" / "own_loop.py"


def launched(n: int, program: Path) -> list[str]:
    out: list[str] = []
    err: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(SOURCE))
        patch.setenv("PYTHONWARNINGS", "ignore")
        patch.setenv("HF_HUB_OFFLINE", "1")
        code = Launcher(federation(n), [sys.executable, str(program)], out.append, err.append).run()
    assert code == 0, "\n".join(err)
    return out


def accuracies(lines: list[str]) -> list[float]:
    return [float(found[1]) for line in lines if (found := re.search(r"accuracy (\d\.\d+)", line))]


@pytest.mark.slow  # its fast sibling is in test_launch
def test_the_two_lines_under_swiftfl_launch() -> None:
    found = accuracies(launched(4, LOOP))
    assert len(found) == 4
    assert len(set(found)) == 1  # all leave with the same model
    assert found[0] > 0.8


def _mpi_is_missing() -> str | None:
    try:
        launch.mpiexec()
    except UserError as error:
        return str(error)
    return None


@pytest.mark.skipif(_mpi_is_missing() is not None, reason=str(_mpi_is_missing()))
@pytest.mark.parametrize("n", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_the_two_lines_under_mpiexec(n: int) -> None:
    env = {
        **launch.environment(),
        "PYTHONPATH": os.pathsep.join([str(SOURCE)]),
        "SWIFTFL_TOPOLOGY": "complete",
    }
    done = subprocess.run(
        launch.command(n, [str(LOOP)]), env=env, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    found = accuracies(done.stdout.splitlines())
    assert len(found) == n
    assert len(set(found)) == 1
    assert found[0] > 0.8


@pytest.mark.slow
@pytest.mark.skipif(_mpi_is_missing() is not None or launch.is_mpich(), reason="needs Open MPI with ULFM")
def test_a_killed_rank_neither_stops_nor_blocks_the_others() -> None:
    program = [str(Path(__file__).with_name("loop_program.py")), "200", "--sleep", "0.05", "--kill", "1", "5"]
    env = {**launch.environment(), "PYTHONPATH": str(SOURCE)}
    command = launch.command(3, program, ("--with-ft", "ulfm"))
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240, check=False)
    ends = re.findall(r"consensus (\d) (\w+)", done.stdout)
    assert [count for count, _ in ends] == ["2", "2"], done.stdout + done.stderr
    assert ends[0] == ends[1]
    assert sorted(re.findall(r"neighbours (.*)", done.stdout)) == ["[0]", "[2]"]
    assert "rank 1 died; the others go on" in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(find_spec("lightning") is None, reason="needs Lightning: make install-integrations")
def test_lightning_under_swiftfl_launch() -> None:
    found = accuracies(launched(2, ROOT / "examples" / "integrations" / "lightning_loop.py"))
    assert len(found) == 2
    assert len(set(found)) == 1
    assert found[0] > 0.8


@pytest.mark.slow
@pytest.mark.skipif(find_spec("transformers") is None, reason="needs transformers: make install-integrations")
def test_transformers_under_swiftfl_launch() -> None:
    lines = launched(2, ROOT / "examples" / "integrations" / "transformers_loop.py")
    assert sorted(line[4:] for line in lines if "comes" in line) == [
        f"client {i} of 2: after 3 4 5 6 comes 7" for i in range(2)
    ]
