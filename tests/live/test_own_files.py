"""Forked clients read through files that were open before, each from a place of its own."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import swiftfl
from file_data import in_a_file
from swiftfl.data import as_dataset
from swiftfl.engines.live.local.forkserver import fork_child, run_and_exit


def _in_a_fork(work: object) -> int:
    pid = fork_child()
    if pid == 0:
        run_and_exit(work)  # type: ignore[arg-type]
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("removed", [False, True])
def test_a_fork_that_reads_moves_nobody_else(removed: bool, tmp_path: Path) -> None:
    path = tmp_path / "letters"
    path.write_bytes(b"abcdefgh")
    with path.open("rb", buffering=0) as raw, path.open("rb") as buffered:
        assert raw.read(2) == buffered.read(2) == b"ab"
        if removed:  # what is open can be read on
            path.unlink()

        def work() -> int:
            return 0 if raw.read(3) == buffered.read(3) == b"cde" else 3

        assert _in_a_fork(work) == 0
        assert raw.read(2) == buffered.read(2) == b"cd"


def test_a_file_that_is_written_stays_what_it_is(tmp_path: Path) -> None:
    """Who writes after somebody else has must find the end where it is now."""
    path = tmp_path / "letters"
    with path.open("wb", buffering=0) as file:
        file.write(b"ab")
        assert _in_a_fork(lambda: 0 if file.write(b"cd") == 2 else 3) == 0
        file.write(b"ef")
    assert path.read_bytes() == b"abcdef"


def test_clients_read_their_samples_by_one_file(tmp_path: Path) -> None:
    """In rounds, so that the bits do not depend on who was faster."""

    def model() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))

    found = []
    with in_a_file(tmp_path / "samples") as samples:
        for memory in (1e9, 0):
            result = swiftfl.train(
                model, as_dataset(samples, memory=memory), clients=4, epochs=5, batch_size=4,
                engine=swiftfl.Local(), algorithm="dsgd",
            )  # fmt: skip
            found.append([np.asarray(x).tobytes() for x in result._models])
    assert found[0] == found[1]
