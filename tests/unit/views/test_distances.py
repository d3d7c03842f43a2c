"""How far models are from their average, as the run's own files have them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import swiftfl
from swiftfl.views import RunView
from swiftfl.views.distances import Distances


def test_distances_of_a_recorded_run_are_those_of_its_models(tmp_path: Path) -> None:
    result = swiftfl.train("logistic", "digits", clients=4, epochs=1, out=tmp_path / "run")
    models = np.stack([np.concatenate([p.ravel() for p in _arrays(result, i)]) for i in range(4)])
    wanted = np.linalg.norm(models - models.mean(axis=0), axis=1)
    now = RunView(tmp_path / "run").now()
    assert now is not None
    assert now["columns"]["distance"] == pytest.approx(wanted.tolist(), rel=1e-4)
    rms = np.sqrt(np.mean(np.square(wanted)))
    assert rms == pytest.approx(result.summary["consensus_distance"], rel=1e-4)


def _arrays(result: swiftfl.Result, client: int) -> list[np.ndarray]:
    return [value.numpy() for value in result.state_dict(client).values()]


def test_models_that_are_missing_damaged_or_of_others_have_no_distance(tmp_path: Path) -> None:
    distances = Distances(tmp_path)
    assert distances.of(2) == [None, None]
    (tmp_path / "models.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}      ")
    assert distances.of(2) == [None, None]
    (tmp_path / "models.safetensors").write_bytes(b"nonsense")
    assert distances.of(2) == [None, None]
    swiftfl.train("logistic", "digits", clients=4, epochs=1, out=tmp_path / "run")
    assert None not in Distances(tmp_path / "run").of(4)
    assert Distances(tmp_path / "run").of(3) == [None] * 3
