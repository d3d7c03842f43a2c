"""What a user adds from outside the package works by its name everywhere, like what is inside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from swiftfl.data.dataset import Dataset
from swiftfl.data.parse import PARTITIONS
from swiftfl.data.partition import Indices, Partition, make
from swiftfl.data.registry import DATASETS
from swiftfl.data.source import Stored
from swiftfl.experiment.build import build
from swiftfl.experiment.config import Config
from swiftfl.experiment.run import run
from swiftfl.graph.registry import TOPOLOGIES
from swiftfl.graph.topology import Topology
from swiftfl.registry import Registry
from swiftfl.workload.models import MODELS


@pytest.fixture(autouse=True)
def registries() -> Iterator[None]:
    """What a test registers is gone after it."""
    every: tuple[Registry[object], ...] = (TOPOLOGIES, PARTITIONS, DATASETS, MODELS)  # type: ignore[assignment]
    before = [dict(registry._entries) for registry in every]
    yield
    for registry, entries in zip(every, before, strict=True):
        registry._entries = entries


def short(**changes: object) -> Config:
    base = {"engine.epochs": 1, "topology.clients": 6, "algorithm.step_size.initial": 0.05}
    return Config().with_changes({**base, **changes})


def test_an_own_topology(tmp_path: Path) -> None:
    @TOPOLOGIES.add("wheel")
    def wheel(n: int, spokes: int = 1) -> Topology:
        """A ring whose client 0 also knows every `spokes`-th other."""
        rim = [(i, (i + 1) % n) for i in range(n)]
        return Topology(n, sorted({(min(e), max(e)) for e in rim + [(0, i) for i in range(1, n, spokes)]}))

    config = short(**{"topology.name": "wheel", "topology.options": {"spokes": 2}})
    assert build(config).topology.neighbours(0) == (1, 3, 5)
    assert run(config, tmp_path / "run").summary["loss"] < 2.3


def test_an_own_partition(tmp_path: Path) -> None:
    @PARTITIONS.add("sorted_blocks")
    def sorted_blocks(labels: Indices, clients: int, seed: int, blocks: int) -> Partition:
        """Samples sorted by label, dealt out in blocks, so that each client sees a few labels only."""
        pieces = np.array_split(np.argsort(labels, kind="stable"), clients * blocks)
        return make(f"sorted_blocks:{blocks}", [np.concatenate(pieces[i::clients]) for i in range(clients)])

    config = short(**{"data.partition": "sorted_blocks:1"})
    parts = build(config)
    assert (parts.partition.histogram(parts.data.labels) > 0).sum(axis=1).max() <= 3
    assert run(config, tmp_path / "run").summary["loss"] < 2.3


def test_an_own_dataset_and_model(tmp_path: Path) -> None:
    @DATASETS.add("signs")
    def signs(samples: int, noise: float = 0.1) -> Dataset:
        x = torch.randn(samples, 2, generator=torch.Generator().manual_seed(0))
        y = (x[:, 0] > noise).long()
        return Dataset("signs", Stored(x, y), Stored(x, y), classes=2)

    @MODELS.add("deep")
    def deep(shape: tuple[int, ...], classes: int, width: int = 8) -> torch.nn.Module:
        return torch.nn.Sequential(
            torch.nn.Linear(shape[0], width), torch.nn.Tanh(), torch.nn.Linear(width, classes)
        )

    changes = {
        "data.dataset": "signs",
        "data.options": {"samples": 600},
        "model.name": "deep",
        "model.options": {"width": 4},
        "engine.epochs": 5,
        "algorithm.step_size.initial": 0.2,
    }
    assert run(short(**changes), tmp_path / "run").summary["accuracy"] > 0.9
