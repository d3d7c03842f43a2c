"""A dataset: training and test tensors in host memory, checked once.

Samples are addressed by their position in the training tensors, because a batch must be cheap to
name (a slice of integers travels, not images) and cheap to gather for many clients at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from swiftfl.errors import UserError


@dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs are floating, or uint8 images that are divided by 255 when a batch is gathered.

    Labels are int64 in [0, classes); with ``classes=None`` they are targets of a user's own loss.
    `mean` and `std` (per channel, of the scaled inputs) are what normalisation subtracts and divides by.
    """

    name: str
    train_inputs: Tensor
    train_labels: Tensor
    test_inputs: Tensor
    test_labels: Tensor
    classes: int | None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        _check(f"{self.name} training set", self.train_inputs, self.train_labels, self.classes)
        _check(f"{self.name} test set", self.test_inputs, self.test_labels, self.classes)
        if self.train_inputs.shape[1:] != self.test_inputs.shape[1:]:
            raise UserError(
                f"{self.name}: training inputs are {tuple(self.train_inputs.shape[1:])}, "
                f"test inputs {tuple(self.test_inputs.shape[1:])}"
            )
        if self.train_inputs.dtype != self.test_inputs.dtype:
            raise UserError(f"{self.name}: training and test inputs have different types")
        _check_normalisation(self)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.train_inputs.shape[1:])

    @property
    def size(self) -> int:
        """The number of training samples."""
        return self.train_inputs.shape[0]

    @property
    def labels(self) -> npt.NDArray[np.int64]:
        """The training labels for a partition to look at; without classes all samples are of one kind."""
        if self.classes is None:
            return np.zeros(self.size, dtype=np.int64)
        return np.asarray(self.train_labels.numpy(), dtype=np.int64)


def _check(what: str, inputs: Tensor, labels: Tensor, classes: int | None) -> None:
    if inputs.device.type != "cpu" or labels.device.type != "cpu":
        raise UserError(f"{what}: tensors must be in host memory (a workload moves its batches)")
    if inputs.ndim < 2 or inputs.shape[0] == 0:
        raise UserError(f"{what}: inputs must be (samples, ...) with at least one sample")
    if labels.ndim < 1 or inputs.shape[0] != labels.shape[0]:
        raise UserError(f"{what}: {inputs.shape[0]} inputs but labels of shape {tuple(labels.shape)}")
    if not inputs.is_floating_point() and inputs.dtype != torch.uint8:
        raise UserError(f"{what}: inputs must be floating or uint8, not {inputs.dtype}")
    if inputs.is_floating_point() and not bool(torch.isfinite(inputs).all()):
        raise UserError(f"{what}: inputs hold NaN or infinity")
    if classes is not None:
        _check_labels(what, labels, classes)


def _check_labels(what: str, labels: Tensor, classes: int) -> None:
    if classes < 1:
        raise UserError(f"{what}: classes must be at least 1, not {classes}")
    if labels.dtype != torch.int64 or labels.ndim != 1:
        raise UserError(f"{what}: labels must be one int64 each, not {labels.dtype}")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise UserError(f"{what}: labels go from {low} to {high}, but must be in [0, {classes})")


def _check_normalisation(data: Dataset) -> None:
    if len(data.mean) != len(data.std) or (data.mean and len(data.mean) != data.shape[0]):
        raise UserError(f"{data.name}: mean and std need one number per channel ({data.shape[0]})")
    if any(not s > 0 for s in data.std):
        raise UserError(f"{data.name}: std must be positive, not {data.std}")
