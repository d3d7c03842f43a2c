"""Clients whose models are tensors: processes publish, average and record them like any others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from live_worlds import LIMIT, replay, running

from swiftfl.engines import Setup
from swiftfl.experiment.build import build
from swiftfl.experiment.recipes import recipe


def setup(vectors: str, algorithm: str) -> Setup:
    changes = {
        "model.vectors": vectors,
        "algorithm.name": algorithm,
        "algorithm.rule": "adam",
        "algorithm.step_size.initial": 0.005,
        "engine.name": "local",
        "engine.epochs": 3,
        "topology.clients": 4,
    }
    return build(recipe("digits").with_changes(changes)).setup


@pytest.mark.parametrize("algorithm", ["swift", "dsgd"])
def test_a_run_with_tensors_is_replayed_with_either_kind(algorithm: str, tmp_path: Path) -> None:
    """Bit for bit with tensors, to float tolerance with NumPy's vectors: the record does not depend on it."""
    with running(setup("torch", algorithm), tmp_path) as engine:
        assert engine.wait(LIMIT)
        assert not engine.supervisor.lost
        live = [np.asarray(x) for x in engine.models]
    again = replay(setup("torch", algorithm), tmp_path)
    assert all(np.array_equal(a, np.asarray(b)) for a, b in zip(live, again, strict=True))
    plain = replay(setup("numpy", algorithm), tmp_path)
    assert all(np.allclose(a, b, rtol=1e-2, atol=1e-3) for a, b in zip(live, plain, strict=True))


@pytest.mark.parametrize("algorithm", ["adpsgd", "allreduce"])
def test_cells_and_sums_take_tensors_too(algorithm: str, tmp_path: Path) -> None:
    with running(setup("torch", algorithm), tmp_path) as engine:
        assert engine.wait(LIMIT)
        assert not engine.supervisor.lost
        losses = [each.loss for each in engine.setup.workload.evaluate(engine.models)]
    assert max(losses) < 1.0
