"""Ranks select their weights themselves (`--ccs distributed`): the bits of the central CCS."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import live_worlds
import pytest
from mpi_ccs_program import GRAPH, own_ccs_setup
from mpi_jobs import HERE, needs_mpi, no_job_is_left, under_mpi
from test_own_ccs import adopted, central

__all__ = ["no_job_is_left"]

SURVIVE = ("--with-ft", "ulfm")
SLOW = pytest.mark.slow


def run(name: str, folder: Path, mishap: str = "") -> dict[str, Any]:
    program = [str(HERE / "mpi_ccs_program.py"), name, str(folder), mishap]
    done = under_mpi(GRAPH.n, program, SURVIVE if mishap else ())
    assert done.returncode == 0, done.stderr
    (answer,) = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return answer  # type: ignore[no-any-return]


def check_replay(name: str, folder: Path, answer: dict[str, Any], mishap: str = "") -> None:
    members = {*range(GRAPH.n)} - {*answer["lost"]}
    live_worlds.check_replay(own_ccs_setup(name, mishap), folder, answer["models"], members)


@needs_mpi
@SLOW
@pytest.mark.parametrize("name", ["swift+", "dsgd"])
def test_before_the_first_step(name: str, tmp_path: Path) -> None:
    answer, setup = run(name, tmp_path), own_ccs_setup(name)
    assert [adopted(tmp_path, i) for i in range(GRAPH.n)] == [[w] for w in setup.weights]
    sent = 4 * 4 + 6 * 1  # one tie
    assert answer["ccs"]["runs"] == 1
    assert answer["ccs"]["messages"] == sent
    check_replay(name, tmp_path, answer)


@needs_mpi
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("swift", marks=SLOW),
        pytest.param("swift+", marks=SLOW),
        pytest.param("dsgd", marks=SLOW),
        "dsgd+",
    ],
)
def test_after_a_death(name: str, tmp_path: Path) -> None:
    answer, last = run(name, tmp_path, "kill"), central(own_ccs_setup(name), {1})
    assert answer["lost"] == [1]
    assert answer["ccs"]["runs"] == 2
    for i, expected in last.items():
        assert adopted(tmp_path, i) == [own_ccs_setup(name).weights[i], expected]
    check_replay(name, tmp_path, answer, "kill")


@needs_mpi
@SLOW
@pytest.mark.parametrize("name", ["swift", "dsgd"])
@pytest.mark.parametrize("victim", [1, 0])
def test_one_that_dies_while_the_first_weights_are_selected(name: str, victim: int, tmp_path: Path) -> None:
    """The others select among themselves, also without the first rank, which leads."""
    answer = run(name, tmp_path, "select0" if victim == 0 else "select")
    assert answer["lost"] == [victim]
    for i, expected in central(own_ccs_setup(name), {victim}).items():
        assert adopted(tmp_path, i)[-1] == expected
    check_replay(name, tmp_path, answer)
