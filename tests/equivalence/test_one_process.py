"""What other processes would find otherwise, a simulated run computes by itself, and says so."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import swiftfl
from file_data import SAMPLES, in_a_file
from swiftfl.data import as_dataset
from swiftfl.engines.simulation import helpers
from swiftfl.engines.threads import CORES


class Noisy(nn.Module):
    """Its forward pass draws numbers, if it has something to draw from."""

    def __init__(self, draw: Callable[[], float]) -> None:
        super().__init__()
        self.convolution, self.last, self.draw = nn.Conv2d(1, 2, 3), nn.Linear(72, 3), draw

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.last(torch.relu(self.convolution(x + self.draw())).flatten(1))
        return found


def _draws() -> dict[str, Callable[[], float]]:
    return {
        "NumPy": lambda: float(np.random.rand()),  # noqa: NPY002
        "Python": random.random,
        "nobody": lambda: 0.0,
    }


def _train(draw: Callable[[], float], data: Any, workers: int | Literal["auto"]) -> list[bytes]:
    np.random.seed(1)  # noqa: NPY002
    random.seed(1)
    settings = {"model.batching": "off"}
    engine = swiftfl.Virtual(workers=workers)
    result = swiftfl.train(
        lambda: Noisy(draw), data, clients=8, epochs=2, batch_size=4, engine=engine, settings=settings
    )
    return [np.asarray(model).tobytes() for model in result._models]


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The processes that were forked; `auto` forks as soon as it may."""
    found: list[int] = []
    fork = os.fork

    def counted() -> int:
        pid = fork()
        found.append(pid)
        return pid

    monkeypatch.setattr(os, "fork", counted)
    monkeypatch.setattr(helpers, "_WORTH_SECONDS", 0.0)
    monkeypatch.setattr(helpers, "_WORTH_PIECE", 0.0)
    monkeypatch.setattr(helpers, "cores", lambda: 2)
    monkeypatch.setenv(CORES, "2")
    return found


@pytest.mark.parametrize("workers", [2, "auto"])
@pytest.mark.parametrize("whose", ["NumPy", "Python", "nobody"])
def test_a_model_that_draws_from_generators_that_all_share(
    whose: str, workers: int | Literal["auto"], forks: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    inputs = torch.randn(SAMPLES, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    data, draw = (inputs, torch.arange(SAMPLES) % 3), _draws()[whose]
    expected = _train(draw, data, 1)
    assert not forks
    assert "one process" not in capsys.readouterr().err
    assert _train(draw, data, workers) == expected
    assert bool(forks) == (whose == "nobody")
    told = f"the run stays in one process: its forward pass draws from {whose}'s global generator"
    assert (told in capsys.readouterr().err) == (whose != "nobody" and workers == 2)


@pytest.mark.parametrize("workers", [2, "auto"])
def test_samples_that_are_read_through_an_open_file(
    workers: int | Literal["auto"], forks: list[int], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    nobody = _draws()["nobody"]
    with in_a_file(tmp_path / "samples") as samples:
        expected = _train(nobody, as_dataset(samples), 1)
        assert _train(nobody, as_dataset(samples, memory=0), workers) == expected
        assert not forks
        told = "the run stays in one process: its samples are read as they are needed"
        assert (told in capsys.readouterr().err) == (workers == 2)
        assert (
            _train(nobody, as_dataset(samples), workers) == expected
        )  # all in memory: nothing is in the way
        assert forks
