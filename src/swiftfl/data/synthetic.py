"""Data of any size and shape, drawn from a seed: for tests, benchmarks and scale."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from swiftfl.data.dataset import Dataset
from swiftfl.data.registry import DATASETS
from swiftfl.data.source import Stored
from swiftfl.errors import UserError
from swiftfl.memory import require_memory
from swiftfl.streams import stream


@DATASETS.add("synthetic")
def synthetic(
    samples: int,
    shape: int | Sequence[int] = 20,
    classes: int = 10,
    seed: int = 0,
    *,
    test_samples: int | None = None,
    separation: float = 3.0,
) -> Dataset:
    """Normal clouds around one random centre per class, `separation` standard deviations from the origin.

    Labels are balanced (give or take one) and in random order; the test set, a fifth of `samples` unless
    given, is drawn apart.

    >>> data = synthetic(100, (1, 4, 4), classes=3)
    >>> data.size, data.shape, len(data.test_labels)
    (100, (1, 4, 4), 20)
    """
    shape = _checked_shape(shape)
    test_samples = max(1, samples // 5) if test_samples is None else test_samples
    if min(samples, classes, test_samples, *shape) < 1:
        raise UserError(f"synthetic data needs positive sizes, not {samples}, {shape}, {classes} classes")
    features = math.prod(shape)
    numbers = 2 * (samples + test_samples + classes) * features  # noise and its sum with the centres
    require_memory(f"synthetic data of {samples} samples of {features} numbers", 4 * numbers)
    draw = stream(seed, "synthetic")
    centres = draw.standard_normal((classes, features)).astype(np.float32)
    centres *= separation / np.linalg.norm(centres, axis=1, keepdims=True)
    tensors: list[torch.Tensor] = []  # training inputs and labels, test inputs and labels
    for count in (samples, test_samples):
        labels = draw.permutation(np.arange(count, dtype=np.int64) % classes)
        noise = draw.standard_normal((count, features), dtype=np.float32)
        inputs = (centres[labels] + noise).reshape(count, *shape)
        tensors += [torch.from_numpy(inputs), torch.from_numpy(labels)]
    train, test = Stored(tensors[0], tensors[1]), Stored(tensors[2], tensors[3])
    return Dataset("synthetic", train, test, classes=classes)


def _checked_shape(shape: object) -> tuple[int, ...]:
    sizes = (shape,) if isinstance(shape, int) else shape
    if not isinstance(sizes, Sequence) or not sizes or any(type(size) is not int for size in sizes):
        raise UserError(f"synthetic data: shape must be one or more whole numbers, not {shape!r}")
    return tuple(sizes)
