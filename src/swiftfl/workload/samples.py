"""The dataset as a workload uses it: on its device, gathered by position, ready for the module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from swiftfl.data.augment import Augment
from swiftfl.data.dataset import Dataset
from swiftfl.data.shift import Drift
from swiftfl.data.source import Source, Stored
from swiftfl.data.tree import Tree, leaves, map_tree
from swiftfl.errors import UserError
from swiftfl.sample import Batch

_TEST_CHUNK = {"cpu": 512, "cuda": 4096}


def test_chunk(device: torch.device, labels: Tree | None) -> int:
    """How many test samples are looked at together, by the device and the labels of one of them."""
    most = _TEST_CHUNK.get(device.type, _TEST_CHUNK["cpu"])
    return max(1, most // labels.numel()) if isinstance(labels, Tensor) else most


class Samples:
    """Batches are gathered in one go for a whole group, augmented raw, and then made floating.

    Images that come as uint8 stay so in memory (a quarter of the size) and are scaled when gathered;
    floating inputs that are in memory and need no augmentation are normalised once, here. Whole numbers
    (token ids) and truth values (masks) stay what they are.
    """

    def __init__(
        self,
        dataset: Dataset,
        device: torch.device,
        dtype: torch.dtype,
        augment: Augment | None,
        drift: Drift | None = None,
    ) -> None:
        self.device = device
        self._drift = drift
        self.drifts = drift is not None
        self._dtype = dtype
        self._augment = augment
        first = dataset.train.cut(0, 1)[0]
        self.plain = isinstance(first, Tensor)
        self.floating = isinstance(first, Tensor) and becomes_floating(first)
        if augment is not None and not self.plain:
            raise UserError("augmentation needs images as the only input")
        self._shift, self._scale = _affine(dataset, device, dtype)
        self._train = self._prepared(dataset.train)
        self._test = self._train if dataset.test is dataset.train else self._prepared(dataset.test)

    @property
    def in_memory(self) -> bool:
        """Whether no sample has to be read any more."""
        return isinstance(self._train, Stored) and isinstance(self._test, Stored)

    def train(self, batches: Sequence[Batch]) -> tuple[Tree, Tree | None]:
        """Inputs and labels of these batches, one after the other."""
        if len(batches) == 1:
            positions = batches[0].indices
        else:
            positions = np.concatenate([batch.indices for batch in batches])
        inputs, labels = self._train.take(positions)
        if self._augment is not None and isinstance(inputs, Tensor):
            inputs = self._augment(inputs.to(self.device), batches)
        inputs, labels = self._finished(self._train, inputs, labels)
        if self._drift is not None and isinstance(inputs, Tensor) and isinstance(labels, Tensor):
            return self._drift.of_batches(inputs, labels, batches)
        return inputs, labels

    def follow(self, epochs: Sequence[float]) -> None:
        """The next test data are as they are at these epochs of the clients."""
        if self._drift is not None:
            self._drift.epochs = epochs

    @property
    def test_at_hand(self) -> bool:
        """Whether going through the test data again costs nothing: they are in memory as a model takes them.

        The processor scales images as they are asked for; for a GPU that is nothing.
        """
        if not isinstance(self._test, Stored) or self.drifts:
            return False
        if self.device.type != "cpu":
            return True
        return self._augment is None and all(t.dtype != torch.uint8 for _, t in leaves(self._test.inputs))

    def test(self, chunk: int) -> Iterator[tuple[Tree, Tree | None]]:
        """The test set in pieces, never augmented."""
        for start in range(0, len(self._test), chunk):
            inputs, labels = self._finished(self._test, *self._test.cut(start, start + chunk))
            if self._drift is not None and isinstance(inputs, Tensor) and isinstance(labels, Tensor):
                inputs, labels = self._drift.of_test(inputs, labels, start)
            yield inputs, labels

    def _prepared(self, source: Source) -> Source:
        """What is in memory goes to the device; floating numbers get their type and normalisation."""
        if not isinstance(source, Stored):
            return source
        inputs = map_tree(lambda t: t.to(self.device), source.inputs)
        if self._augment is None:
            inputs = map_tree(lambda t: self._ready(t) if t.is_floating_point() else t, inputs)
        return Stored(inputs, None if source.labels is None else map_tree(self._label, source.labels))

    def _finished(self, source: Source, inputs: Tree, labels: Tree | None) -> tuple[Tree, Tree | None]:
        if not isinstance(source, Stored):
            inputs = map_tree(lambda t: self._ready(t.to(self.device)), inputs)
            return inputs, None if labels is None else map_tree(self._label, labels)
        if self._augment is not None:
            return map_tree(self._ready, inputs), labels
        return map_tree(lambda t: self._ready(t) if t.dtype == torch.uint8 else t, inputs), labels

    def _ready(self, inputs: Tensor) -> Tensor:
        if not becomes_floating(inputs):
            return inputs
        floating = inputs.to(self._dtype)
        if inputs.dtype == torch.uint8 and not self.plain:
            return floating / 255
        if self._shift is None:
            return floating
        return torch.addcmul(self._shift, floating, self._scale)

    def _label(self, labels: Tensor) -> Tensor:
        """Targets are as precise as the model; classes are int64."""
        if labels.is_floating_point():
            return labels.to(self.device, self._dtype)
        return labels.to(self.device) if labels.is_complex() else labels.to(self.device, torch.int64)


def count(inputs: Tree) -> int:
    """How many samples a batch has."""
    while not isinstance(inputs, Tensor):
        inputs = next(iter(inputs.values())) if isinstance(inputs, dict) else inputs[0]
    return len(inputs)


def becomes_floating(inputs: Tensor) -> bool:
    """Whether the model gets these in its own precision: numbers and images, not token ids."""
    return inputs.is_floating_point() or inputs.dtype == torch.uint8


def _affine(dataset: Dataset, device: torch.device, dtype: torch.dtype) -> tuple[Tensor | None, Tensor]:
    """Scaling by 255 and normalisation as one shift + scale * raw; no shift means: leave as it is."""
    inputs = dataset.train.cut(0, 1)[0]
    top = 255.0 if isinstance(inputs, Tensor) and inputs.dtype == torch.uint8 else 1.0
    ones = (1,) * (inputs.ndim - 2) if isinstance(inputs, Tensor) else ()
    if not dataset.mean:
        scale = torch.full((1, *ones), 1.0 / top, dtype=dtype, device=device)
        return (torch.zeros_like(scale) if top != 1.0 else None), scale
    mean = torch.tensor(dataset.mean, dtype=torch.float64).view(-1, *ones)
    std = torch.tensor(dataset.std, dtype=torch.float64).view(-1, *ones)
    return (-mean / std).to(device, dtype), (1.0 / (top * std)).to(device, dtype)
