"""The real ResNet-18 takes real steps in both engines."""

from __future__ import annotations

import numpy as np
import pytest

from swiftfl.experiment.build import build
from swiftfl.experiment.recipes import synthetic


@pytest.mark.parametrize("engine", ["virtual", pytest.param("sampled", marks=pytest.mark.slow)])
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_resnet18_trains(engine: str, norm: str) -> None:
    config = synthetic().with_changes(
        {
            "data.options": {"samples": 40, "shape": [3, 32, 32], "classes": 10},
            "data.batch_size": 4,
            "model.name": "resnet18",
            "model.norm": norm,
            "topology.clients": 2,
            "algorithm.step_size.initial": 0.01,
            "engine.name": engine,
            "engine.epochs": None,
            "engine.iterations": 4,
        }
    )
    parts = build(config)
    assert parts.workload.parameters == 11_173_962
    # BatchNorm keeps a running mean and variance for each of its 4,800 planes; GroupNorm keeps nothing.
    assert parts.workload.buffers == (2 * 4_800 if norm == "batch" else 0)
    world = parts.engine(engine)
    x0 = parts.workload.initial(config.seed)
    world.start()
    world.advance(4)
    assert world.iteration == 4
    taken = [record.steps for record in world.world.records]
    for steps, x in zip(taken, world.models, strict=True):
        assert np.isfinite(x).all()
        assert (steps == 0) or (np.abs(x - x0) > 0).mean() > 0.9
    assert sum(taken) == 4
    assert 0 < (world.take_train_loss() or 0.0) < 6
