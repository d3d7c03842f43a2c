"""The user's own data: tensors, or any torch dataset."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from swiftfl.data.dataset import Dataset
from swiftfl.errors import UserError


class Indexed(Protocol):
    """What is needed of a torch dataset: a length, and (input, label) pairs by position."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> tuple[object, object]: ...


def from_tensors(
    train_inputs: Tensor,
    train_labels: Tensor,
    test_inputs: Tensor,
    test_labels: Tensor,
    classes: int | None = None,
    name: str = "tensors",
) -> Dataset:
    """Integer labels are classes (counted from the training labels unless given), others are targets."""
    if not train_labels.is_floating_point():
        train_labels, test_labels = train_labels.long(), test_labels.long()
        if classes is None and train_labels.numel():
            classes = int(train_labels.max()) + 1
    return Dataset(name, train_inputs, train_labels, test_inputs, test_labels, classes)


def from_torch_dataset(
    train: Indexed, test: Indexed, classes: int | None = None, name: str = "torch"
) -> Dataset:
    """Read both datasets once, in order; a random transform of theirs is drawn once, not per epoch."""
    return from_tensors(*_read(train, name), *_read(test, name), classes=classes, name=name)


def _read(pairs: Indexed, name: str) -> tuple[Tensor, Tensor]:
    if len(pairs) == 0:
        raise UserError(f"{name}: a dataset is empty")
    inputs, labels = zip(*(pairs[i] for i in range(len(pairs))), strict=True)
    return _stack(inputs, name), _stack(labels, name)


def _stack(items: Iterable[object], name: str) -> Tensor:
    tensors = [item if isinstance(item, Tensor) else torch.from_numpy(np.array(item)) for item in items]
    shapes = {tuple(tensor.shape) for tensor in tensors}
    if len(shapes) > 1:
        raise UserError(f"{name}: samples differ in shape ({', '.join(map(str, sorted(shapes)[:3]))})")
    return torch.stack(tensors)
