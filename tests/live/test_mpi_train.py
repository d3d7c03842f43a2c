"""`swiftfl.train` in a program of one's own under mpiexec."""

from __future__ import annotations

import pytest
from mpi_jobs import HERE, needs_mpi, no_job_is_left, under_mpi

__all__ = ["no_job_is_left"]


@needs_mpi
@pytest.mark.slow
def test_every_rank_trains_and_the_first_has_the_result() -> None:
    done = under_mpi(3, [str(HERE / "mpi_train_program.py")])
    assert done.returncode == 0, done.stderr
    word, accuracy, *rest = done.stdout.split()
    assert (word, rest) == ("accuracy", ["clients", "3", "parameters", "2"])
    assert float(accuracy) > 0.85
