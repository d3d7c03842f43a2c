"""The baseline measured with real processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import swiftfl
from swiftfl.algorithms import dsgd
from swiftfl.experiment.algorithm_config import AlgorithmConfig
from swiftfl.experiment.config import Config, TopologyConfig
from swiftfl.reproduce import live_baseline
from swiftfl.reproduce.live_baseline import Accelerator, emulated, measure_methods, run_locally, write_live
from swiftfl.reproduce.plan import Case, Experiment

QUICK = Accelerator(gradient_seconds=0.005, parameters=1000, steps_per_epoch=6, epochs=2)


def experiment() -> Experiment:
    ring = TopologyConfig(clients=4)
    methods = {"swift_c0": "swift", "dsgd_c0": "dsgd"}
    cases = tuple(
        Case("ring4", key, Config(topology=ring, algorithm=AlgorithmConfig.model_validate({"name": name})))
        for key, name in methods.items()
    )
    return Experiment("baseline", "Baseline", {"ring4": "ring"}, methods, cases)


def test_seconds_are_per_epoch_of_sleeping_clients() -> None:
    found = run_locally(emulated(dsgd(), swiftfl.ring(4), "metropolis", QUICK))
    assert 6 * 0.005 <= found.compute < 1.0
    assert found.communication > 0
    assert found.waiting > 0
    assert found.total == found.compute + found.communication + found.waiting


def test_every_method_is_measured_and_swift_does_not_wait() -> None:
    found = measure_methods(experiment(), QUICK)
    assert (found["clients"], found["steps_per_epoch"], found["gradient_seconds"]) == (4, 6, 0.005)
    assert found["methods"]["swift_c0"]["waiting"] == 0.0
    assert found["methods"]["dsgd_c0"]["waiting"] > 0.0
    assert all(row["compute"] >= 6 * 0.005 for row in found["methods"].values())


def test_what_is_measured_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(live_baseline.SCALES, "smoke", QUICK)
    write_live(experiment(), tmp_path, "smoke")
    first = (tmp_path / "live.json").read_text()
    assert list(json.loads(first)["methods"]) == ["swift_c0", "dsgd_c0"]
    write_live(experiment(), tmp_path, "smoke")
    assert (tmp_path / "live.json").read_text() == first
