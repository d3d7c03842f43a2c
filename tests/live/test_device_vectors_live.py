"""Clients whose models are tensors: processes publish, average and record them like any others."""

from __future__ import annotations

import copy
import json
import mmap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from in_process_wire import Hub
from live_worlds import LIMIT, replay, running
from mpi_jobs import HERE, end, needs_mpi, no_job_is_left, under_mpi
from mpi_jobs import swiftfl as swiftfl_ranks
from tensor_worlds import CHANGED_BY_OTHERS, CLIENTS, LIVE, RULE, SIMULATED, setup

import swiftfl
from makers import MAKERS
from swiftfl.algorithm import why_only_simulated
from swiftfl.algorithms import AdPsgd
from swiftfl.engines import Setup
from swiftfl.engines.live.by_hand import first_client
from swiftfl.engines.live.replay import replay as replay_run
from swiftfl.experiment.build import build
from swiftfl.experiment.config import parse
from swiftfl.record import RunFolder
from swiftfl.record.folder import CLIENTS as JOURNALS
from swiftfl.sample import Batch, Slope
from swiftfl.transports.messages.transport import MessageTransport
from swiftfl.vector import Statistics, Vector
from swiftfl.verbs import Add, Load
from swiftfl.workload.base import Workload
from swiftfl.workload.device_vector import DeviceVector, on_device
from worlds import quadratic_setup

__all__ = ["no_job_is_left"]

FAST = ("swift", "dsgd", "adpsgd", "allreduce")
"""One of each way to meet: mailboxes, rounds, cells, sums. The others are slow tests."""
BATCH_NORM = {
    "data.dataset": "synthetic",
    "data.options": {"samples": 400, "shape": [1, 10, 10], "classes": 3},
    "model.name": "cnn",
    "model.norm": "batch",
}


class Seen:
    """A setup whose clients note, in memory that they share, what models are where gradients are computed."""

    KINDS = (DeviceVector, np.ndarray)

    def __init__(self, setup: Setup) -> None:
        self._found = mmap.mmap(-1, len(self.KINDS))
        workload = copy.copy(setup.workload)
        own = workload.gradient

        def gradient(x: Vector, batch: Batch) -> Slope:
            self._found[[isinstance(x, kind) for kind in self.KINDS].index(True)] = 1
            slope = own(x, batch)
            self._found[[isinstance(slope.g, kind) for kind in self.KINDS].index(True)] = 1
            return slope

        workload.gradient = gradient  # type: ignore[method-assign]
        self.setup = replace(setup, workload=workload)

    def kinds(self) -> set[type]:
        return {kind for kind, found in zip(self.KINDS, self._found[:], strict=True) if found}


@pytest.mark.parametrize("name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow)
                                  for name in LIVE])  # fmt: skip
def test_a_run_with_tensors_is_replayed_with_either_kind(name: str, tmp_path: Path) -> None:
    """Bit for bit with tensors, to float tolerance with NumPy's vectors: the record does not depend on it."""
    seen = Seen(setup("torch", name))
    with running(seen.setup, tmp_path) as engine:
        assert engine.wait(LIMIT)
        assert not engine.supervisor.lost
        live = [np.asarray(x) for x in engine.models]
        losses = [each.loss for each in engine.setup.workload.evaluate(engine.models)]
    assert seen.kinds() == {DeviceVector}
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


@pytest.mark.parametrize("buffers", ["averaged", "own"])
@pytest.mark.parametrize("name", ["adpsgd", "fedavg"])
def test_averages_with_running_statistics_go_back_to_where_gradients_are_computed(
    name: str, buffers: str, tmp_path: Path
) -> None:
    changes = {**BATCH_NORM, "model.buffers": buffers}
    seen = Seen(setup("torch", name, **changes))
    with running(seen.setup, tmp_path) as engine:
        assert engine.wait(LIMIT)
        assert not engine.supervisor.lost
        live = [np.asarray(x) for x in engine.models]
    assert seen.kinds() == {DeviceVector}
    assert np.isfinite(live).all()
    if name not in CHANGED_BY_OTHERS:
        again = replay(setup("torch", name, **changes), tmp_path)
        assert all(np.array_equal(a, np.asarray(b)) for a, b in zip(live, again, strict=True))


class Elsewhere:
    """A quadratic whose models are tensors; `place` counts what goes up."""

    def __init__(self, workload: Workload) -> None:
        self._workload, self.up = workload, 0
        self.name, self.parameters, self.buffers = workload.name, workload.parameters, workload.buffers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._workload, name)

    def place(self, x: Vector) -> Vector:
        if isinstance(x, DeviceVector):
            return x
        self.up += 1
        return on_device(x, torch.device("cpu"))


def test_cells_stay_in_host_memory() -> None:
    """A move comes down before the cell is locked, and whoever loads a cell gets it on the device."""
    made, _, workload = quadratic_setup(AdPsgd(), swiftfl.ring(3))
    there = Elsewhere(workload)
    client = first_client(replace(made, workload=there))
    given: list[object] = []
    own = client.transport.add

    def add(move: Vector, statistics: Statistics | None) -> Vector:
        given.extend((move, statistics.values, statistics.rate) if statistics else (move,))
        return own(move, statistics)

    client.transport.add = add  # type: ignore[method-assign]
    move: Any = DeviceVector(torch.ones(workload.parameters, dtype=torch.float64))
    before = client.server.serve(Load())
    tail: Any = DeviceVector(torch.full((2,), 3.0, dtype=torch.float64))
    after = client.server.serve(Add(move, Statistics(tail, tail)))
    assert {type(x) for x in given} == {np.ndarray}
    for x in (before, after, client.server.serve(Load())):
        assert isinstance(x, DeviceVector)
    assert isinstance(client.server.cell.load(), np.ndarray)
    assert np.array_equal(np.asarray(before)[:-2] + 1, np.asarray(after)[:-2])
    client.transport.close()


def test_also_those_that_start_from_a_tensor() -> None:
    """As a rank's does that joins: others average with it in a thread that knows nothing of devices."""
    x0: Vector = np.zeros(8, np.float32)
    ends = [MessageTransport(wire, [(1,), (0,)], x0) for wire in Hub(2).wires]
    try:
        ends[0].set_cell(on_device(x0 + 2, torch.device("cpu")))
        assert isinstance(ends[0].load(), np.ndarray)
        assert ends[1].average_with(0).tolist() == [1.0] * 8
        assert ends[0].load().tolist() == [1.0] * 8
    finally:
        for end_of_one in ends:
            end_of_one.close()


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
@pytest.mark.parametrize(
    ("algorithm", "codec"),
    [("swift", "identity"), ("dsgd", "identity"), ("fedavg", "identity"), ("swift", "bf16")],
)
def test_ranks_with_tensors_are_replayed_with_either_kind(algorithm: str, codec: str, tmp_path: Path) -> None:
    """Under MPI as between forked processes: tensors are published, averaged, recorded and saved."""
    out = tmp_path / "run"
    options: tuple[str, ...] = (
        "--clients",
        "3",
        "--algorithm",
        algorithm,
        "--epochs",
        "2",
        "--out",
        str(out),
    )
    options += ("--set", "model.vectors=torch", "--codec", codec)
    done = end(swiftfl_ranks(3, "run", "digits", "--engine", "mpi", *options))
    assert done.returncode == 0, done.stderr
    config = parse(RunFolder.open(out).read_json("config.json"))
    live = RunFolder.open(out).read_models()["models"]
    for vectors, close in (("torch", 0.0), ("numpy", 1e-3)):
        again = replay_run(build(config.with_changes({"model.vectors": vectors})).setup, out / JOURNALS)
        for mine, theirs in zip(live, again, strict=True):
            assert np.allclose(mine, np.asarray(theirs), rtol=close, atol=close)
