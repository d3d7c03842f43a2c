"""Running buffers that stay each client's own, in real processes and in replay."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from live_worlds import LIMIT, Unhurried, own_buffers, replay, resumed, running, stop, tagged_setup, under_way
from mpi_jobs import needs_mpi, no_job_is_left, under_mpi

from swiftfl.algorithms import AdPsgd, AllReduceSgd, FedAvg, Swift, dsgd
from swiftfl.engines import VirtualEngine
from swiftfl.engines.live.cell import Cell
from swiftfl.schedule import every
from swiftfl.transports.memory import MemoryPlan
from swiftfl.vector import Statistics
from worlds import run_to_end

__all__ = ["no_job_is_left"]

ALGORITHMS: dict[str, Any] = {
    "swift": Swift(),
    "dsgd": dsgd(),
    "allreduce": AllReduceSgd(),
    "fedavg": FedAvg(every(1)),
    "adpsgd": AdPsgd(),
    "adpsgd, background": AdPsgd(averaging="background"),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_buffers_stay_with_their_client_in_processes(name: str, tmp_path: Path) -> None:
    setup = tagged_setup(ALGORITHMS[name], epochs=2)
    with running(setup, tmp_path / "clients") as engine:
        assert engine.wait(LIMIT)
        models = np.stack(engine.models)
    np.testing.assert_allclose(models[:, 3:], own_buffers(4, 10), rtol=1e-12)
    assert np.ptp(models[:, :3], axis=0).max() < 3.0 * (1.0 - 0.95**10)  # parameters are averaged
    if not name.startswith("adpsgd"):
        np.testing.assert_array_equal(np.stack(replay(setup, tmp_path / "clients")), models)
    if setup.algorithm.in_rounds:
        simulated = tagged_setup(ALGORITHMS[name], epochs=2, network=None)
        np.testing.assert_allclose(np.stack(run_to_end(VirtualEngine(simulated)).models), models, rtol=1e-12)


@pytest.mark.parametrize("name", ["swift", "adpsgd, background"])
def test_a_run_that_goes_on_keeps_them(name: str, tmp_path: Path) -> None:
    """They go on from where they were saved, on their way to i."""
    setup, folder = tagged_setup(ALGORITHMS[name], epochs=40), tmp_path / "clients"
    setup = replace(setup, workload=Unhurried(setup.workload, 0.003, hold=10))
    with running(setup, folder, patience=LIMIT) as engine:
        under_way(engine, 5)
        stop(engine)
    with resumed(setup, folder) as engine:
        assert max(start.c for start in engine.resume.starts if start) < 200
        assert engine.wait(LIMIT)
        models = np.stack(engine.models)
    np.testing.assert_allclose(models[:, 3:], own_buffers(4, 200), rtol=1e-10)


def test_a_cell_shows_its_owner_its_own_buffers() -> None:
    plan = MemoryPlan([(1,), (0,)], np.zeros(3))
    mine, theirs = plan.connect(0), plan.connect(1)
    mine.set_cell(np.array([1.0, 2.0, 3.0]))
    theirs.set_cell(np.array([5.0, 6.0, 7.0]))
    cell = Cell(mine, np.array([1.0, 2.0, 3.0]), own=2)
    assert cell.average_with(1).tolist() == [3.0, 2.0, 3.0]
    assert cell.load().tolist() == [3.0, 2.0, 3.0]
    moved = cell.add(np.array([1.0, 9.0, 9.0]), Statistics(np.array([4.0, 4.0]), 0.5))
    assert moved.tolist() == [4.0, 3.0, 3.5]
    assert cell.add(np.array([1.0, 1.0, 0.0]), None).tolist() == [5.0, 4.0, 3.5]
    assert Cell(theirs, np.zeros(3)).load().tolist() == [3.0, 4.0, 5.0]


@needs_mpi
@pytest.mark.slow
def test_buffers_stay_with_their_rank() -> None:
    done = under_mpi(3, [str(Path(__file__).parent / "own_buffers_program.py")], ())
    assert done.returncode == 0, done.stderr
    found = dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
    assert set(found) == {"swift", "dsgd", "adpsgd", "adpsgd_background", "allreduce"}
    for models in found.values():
        np.testing.assert_allclose(np.array(models)[:, 3:], own_buffers(3, 10), rtol=1e-12)
