"""Models that nobody can fetch any more are given up early where there are many; no bit depends on that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from swiftfl.engines.simulation import checkpoint, world
from swiftfl.engines.simulation.engine import Simulation
from swiftfl.experiment.build import build
from swiftfl.experiment.recipes import digits

FEW = {"data.partition": "bootstrap:32", "data.batch_size": 16, "topology.clients": 90, "engine.epochs": 4}
NETWORKS: dict[str, dict[str, Any]] = {
    "ring": {},
    "barabasi_albert": {"topology.name": "barabasi_albert", "topology.options": {"attach": 4}},
    "uneven": {"engine.costs.spread": 0.5, "engine.costs.slowdowns": [{"client": 3, "factor": 4.0}]},
    "long journeys": {"engine.costs.latency": 0.035},
    "seldom": {"algorithm.communication_set": 2},
    "push-sum": {"algorithm.name": "sgp"},
    "finished early": {"data.partition": "by_size:" + ",".join(["1"] * 45 + ["4"] * 45)},
}


def _engine(network: str) -> Simulation:
    return build(digits().with_changes({**FEW, **NETWORKS[network]})).engine("virtual")


def _run(network: str) -> tuple[list[np.ndarray], int, object]:
    engine = _engine(network)
    engine.start()
    most = 0
    while not engine.over:
        engine.advance(30)
        most = max(most, engine.models_in_memory)
    return engine.models, most, engine.figures()


@pytest.mark.parametrize("network", NETWORKS)
def test_the_same_run_with_fewer_models(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    models, most, figures = _run(network)
    monkeypatch.setattr(world, "MANY_BYTES", 0)
    early, fewer, early_figures = _run(network)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(models, early, strict=True))
    assert figures == early_figures
    assert fewer <= most
    if network == "ring":
        assert most >= 170
        assert fewer <= 160  # 90 models, and the ones of clients whose neighbours were not there yet


def test_what_was_given_up_survives_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "MANY_BYTES", 0)
    whole, _, _ = _run("barabasi_albert")
    first = _engine("barabasi_albert")
    first.start()
    first.advance(140)
    second = _engine("barabasi_albert")
    checkpoint.restore(second, checkpoint.save(first))
    known = second.world.mailboxes.arrivals_everywhere(second.now)
    assert known == first.world.mailboxes.arrivals_everywhere(first.now)
    while not second.over:
        second.advance(10**6)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(whole, second.models, strict=True))
