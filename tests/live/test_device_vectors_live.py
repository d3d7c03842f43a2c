"""Clients whose models are tensors: processes publish, average and record them like any others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from live_worlds import LIMIT, replay, running
from mpi_jobs import HERE, end, needs_mpi, no_job_is_left, under_mpi
from mpi_jobs import swiftfl as swiftfl_ranks
from tensor_worlds import CHANGED_BY_OTHERS, CLIENTS, LIVE, RULE, SIMULATED, setup

import swiftfl
from makers import MAKERS
from swiftfl.algorithm import why_only_simulated
from swiftfl.engines.live.replay import replay as replay_run
from swiftfl.experiment.build import build
from swiftfl.experiment.config import parse
from swiftfl.record import RunFolder
from swiftfl.record.folder import CLIENTS as JOURNALS
from swiftfl.vector import Vector

__all__ = ["no_job_is_left"]

FAST = ("swift", "dsgd", "adpsgd", "allreduce")
"""One of each way to meet: mailboxes, rounds, cells, sums. The others are slow tests."""


@pytest.mark.parametrize("name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow)
                                  for name in LIVE])  # fmt: skip
def test_a_run_with_tensors_is_replayed_with_either_kind(name: str, tmp_path: Path) -> None:
    """Bit for bit with tensors, to float tolerance with NumPy's vectors: the record does not depend on it."""
    with running(setup("torch", name), tmp_path) as engine:
        assert engine.wait(LIMIT)
        assert not engine.supervisor.lost
        live = [np.asarray(x) for x in engine.models]
        losses = [each.loss for each in engine.setup.workload.evaluate(engine.models)]
    check(name, tmp_path, live, losses)


def check(name: str, folder: Path, live: Sequence[Vector], losses: Sequence[float]) -> None:
    if name in CHANGED_BY_OTHERS:
        assert max(losses) < 1.0
        return
    again = replay(setup("torch", name), folder)
    assert all(np.array_equal(a, np.asarray(b)) for a, b in zip(live, again, strict=True))
    plain = replay(setup("numpy", name), folder)
    assert all(np.allclose(a, b, rtol=1e-2, atol=1e-3) for a, b in zip(live, plain, strict=True))


def test_what_processes_cannot_do_is_not_left_out_silently() -> None:
    for name, make in MAKERS.items():
        algorithm = make(swiftfl.ring(4), RULE)
        assert (why_only_simulated(algorithm) is not None) == (name in SIMULATED)


@needs_mpi
@pytest.mark.slow
def test_every_algorithm_has_tensors_under_mpi(tmp_path: Path) -> None:
    """Over messages: cells that others move, sums by one rank, rounds and mailboxes; all in one launch."""
    done = under_mpi(CLIENTS, [str(HERE / "mpi_tensor_program.py"), str(tmp_path)])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == dict.fromkeys(LIVE, 0)
    for name in LIVE:
        live = list(np.load(tmp_path / name / "models.npy"))
        losses = [each.loss for each in setup("numpy", name).workload.evaluate(live)]
        check(name, tmp_path / name, live, losses)


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["swift", "dsgd"])
def test_ranks_with_tensors_are_replayed_with_either_kind(algorithm: str, tmp_path: Path) -> None:
    """Under MPI as between forked processes: tensors are published, averaged, recorded and saved."""
    out = tmp_path / "run"
    options = ("--clients", "3", "--algorithm", algorithm, "--epochs", "2", "--out", str(out))
    done = end(swiftfl_ranks(3, "run", "digits", "--engine", "mpi", *options, "--set", "model.vectors=torch"))
    assert done.returncode == 0, done.stderr
    config = parse(RunFolder.open(out).read_json("config.json"))
    live = RunFolder.open(out).read_models()["models"]
    for vectors, close in (("torch", 0.0), ("numpy", 1e-3)):
        again = replay_run(build(config.with_changes({"model.vectors": vectors})).setup, out / JOURNALS)
        for mine, theirs in zip(live, again, strict=True):
            assert np.allclose(mine, np.asarray(theirs), rtol=close, atol=close)
