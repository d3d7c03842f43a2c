"""Trackers by name, with all that come with swiftfl."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from swiftfl.registry import Registry
from swiftfl.trackers.base import Callback
from swiftfl.trackers.mlflow import MLflow
from swiftfl.trackers.tensorboard import TensorBoard
from swiftfl.trackers.wandb import WandB

TRACKERS: Registry[Callable[[], Callback]] = Registry("tracker")
TRACKERS.register("tensorboard", TensorBoard)
TRACKERS.register("mlflow", MLflow)
TRACKERS.register("wandb", WandB)


def make_trackers(names: Iterable[str]) -> list[Callback]:
    """One object of each name; a library that is not installed is a `UserError`."""
    return [TRACKERS[name]() for name in names]
