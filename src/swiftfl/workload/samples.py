"""The dataset as a workload uses it: on its device, gathered by position, ready for the module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from swiftfl.data.augment import Augment
from swiftfl.data.dataset import Dataset
from swiftfl.sample import Batch


class Samples:
    """Batches are gathered in one go for a whole group, augmented raw, and then made floating.

    Images that come as uint8 stay so in memory (a quarter of the size) and are scaled when gathered;
    floating inputs that need no augmentation are normalised once, here.
    """

    def __init__(
        self, dataset: Dataset, device: torch.device, dtype: torch.dtype, augment: Augment | None
    ) -> None:
        self.device = device
        self._dtype = dtype
        self._augment = augment
        self._shift, self._scale = _affine(dataset, device, dtype)
        self._once = augment is None and dataset.train_inputs.is_floating_point()
        train, test = dataset.train_inputs.to(device), dataset.test_inputs.to(device)
        self._train_inputs = self._ready(train) if self._once else train
        self._test_inputs = self._ready(test) if self._once else test
        self._train_labels = dataset.train_labels.to(device)
        self._test_labels = dataset.test_labels.to(device)

    def train(self, batches: Sequence[Batch]) -> tuple[Tensor, Tensor]:
        """Inputs and labels of these batches, one after the other."""
        if len(batches) == 1:
            indices = torch.from_numpy(batches[0].indices)
        else:
            indices = torch.from_numpy(np.concatenate([batch.indices for batch in batches]))
        if self._train_inputs.device.type != "cpu":
            indices = indices.to(self._train_inputs.device)
        inputs = self._train_inputs.index_select(0, indices)
        if self._augment is not None:
            inputs = self._augment(inputs, batches)
        if not self._once:
            inputs = self._ready(inputs)
        return inputs, self._train_labels.index_select(0, indices)

    def test(self, chunk: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The test set in pieces, never augmented."""
        for start in range(0, len(self._test_labels), chunk):
            inputs = self._test_inputs[start : start + chunk]
            yield inputs if self._once else self._ready(inputs), self._test_labels[start : start + chunk]

    def _ready(self, inputs: Tensor) -> Tensor:
        floating = inputs.to(self._dtype)
        if self._shift is None:
            return floating
        return torch.addcmul(self._shift, floating, self._scale)


def _affine(dataset: Dataset, device: torch.device, dtype: torch.dtype) -> tuple[Tensor | None, Tensor]:
    """Scaling by 255 and normalisation as one shift + scale * raw; no shift means: leave as it is."""
    top = 255.0 if dataset.train_inputs.dtype == torch.uint8 else 1.0
    ones = (1,) * (len(dataset.shape) - 1)
    if not dataset.mean:
        scale = torch.full((1, *ones), 1.0 / top, dtype=dtype, device=device)
        return (torch.zeros_like(scale) if top != 1.0 else None), scale
    mean = torch.tensor(dataset.mean, dtype=torch.float64).view(-1, *ones)
    std = torch.tensor(dataset.std, dtype=torch.float64).view(-1, *ones)
    return (-mean / std).to(device, dtype), (1.0 / (top * std)).to(device, dtype)
