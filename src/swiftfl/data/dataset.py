"""A dataset: training and test samples behind their positions, checked once.

Samples are addressed by their position in the training set, because a batch must be cheap to
name (a slice of integers travels, not images) and cheap to gather for many clients at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from swiftfl.data.partition import Indices, Partition
from swiftfl.data.roles import Roles
from swiftfl.data.source import Source, Stored, check_finite
from swiftfl.data.tree import Tree, difference, leaves, of_samples
from swiftfl.errors import UserError

IGNORED = -100
"""A label in a sequence that does not count, as in torch's cross-entropy."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs are of any type and structure; those that are uint8 are images, divided by 255 in a batch.

    Labels are int64 in [0, classes), one per sample or several (a text's next tokens), where IGNORED may
    stand for none; with ``classes=None`` they are targets, or there are none. `mean` and `std` (per channel,
    of the scaled inputs) are what normalisation subtracts and divides by. `groups` has the number of each
    training sample's group (a user, a hospital), `parts` what each client holds of data that come already
    split. `roles` says how a sample was divided into input and label, `notes` what its user should know.

    >>> x, y = torch.zeros(4, 3), torch.tensor([0, 1, 1, 0])
    >>> Dataset("tiny", Stored(x, y), Stored(x, y), classes=2).shape
    (3,)
    """

    name: str
    train: Source
    test: Source
    classes: int | None = field(kw_only=True)
    mean: tuple[float, ...] = field(default=(), kw_only=True)
    std: tuple[float, ...] = field(default=(), kw_only=True)
    groups: Indices | None = field(default=None, kw_only=True)
    parts: Partition | None = field(default=None, kw_only=True)
    roles: Roles = field(default=Roles(), kw_only=True)
    notes: tuple[str, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        _check(f"{self.name} training set", self.train, self.classes)
        if self.test is not self.train:
            train, test = _first(self.train), _first(self.test)
            _check_alike(f"{self.name}: training and test inputs", train[0], test[0])
            _check_alike(f"{self.name}: training and test labels", train[1], test[1])
            _check(f"{self.name} test set", self.test, self.classes)
        if self.groups is not None and len(self.groups) != self.size:
            raise UserError(f"{self.name}: {len(self.groups)} groups for {self.size} training samples")
        _check_normalisation(self)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input, where it is one tensor."""
        inputs = self.first_inputs
        if not isinstance(inputs, Tensor):
            raise UserError(f"{self.name}: its inputs are several tensors, not one of a shape")
        return tuple(inputs.shape[1:])

    @property
    def size(self) -> int:
        """The number of training samples."""
        return len(self.train)

    @property
    def first_inputs(self) -> Tree:
        """The inputs of the first training sample, as a batch of one."""
        return _first(self.train)[0]

    @property
    def first_labels(self) -> Tree | None:
        """The label of the first training sample, as a batch of one."""
        return _first(self.train)[1]

    @property
    def labels(self) -> Indices:
        """The classes of the training samples, for partitions; without classes all are of one kind."""
        if self.classes is None or self.why_no_classes() is not None:
            return np.zeros(self.size, dtype=np.int64)
        labels = self.train.all_labels()
        assert isinstance(labels, Tensor)
        return np.asarray(labels.numpy(), dtype=np.int64)

    def why_no_classes(self) -> str | None:
        """Why samples cannot be told apart by class; None if they can."""
        labels = self.first_labels
        if labels is None:
            return "there are no labels"
        if not isinstance(labels, Tensor):
            return "a label is not one number"
        if labels.is_floating_point():
            return f"the labels are {str(labels.dtype).removeprefix('torch.')} numbers, not classes"
        if labels.ndim > 1:
            return f"each sample has {tuple(labels.shape[1:])} labels, not one class"
        return None

    @property
    def train_inputs(self) -> Tensor:
        """The training inputs, where they are one tensor in memory; so with the three that follow."""
        return _tensor(self.name, self.train, 0)

    @property
    def train_labels(self) -> Tensor:
        return _tensor(self.name, self.train, 1)

    @property
    def test_inputs(self) -> Tensor:
        return _tensor(self.name, self.test, 0)

    @property
    def test_labels(self) -> Tensor:
        return _tensor(self.name, self.test, 1)


def _tensor(name: str, source: Source, which: int) -> Tensor:
    found = (source.inputs, source.labels)[which] if isinstance(source, Stored) else None
    if not isinstance(found, Tensor):
        raise UserError(f"{name}: its samples are not plain tensors in memory")
    return found


def _first(source: Source) -> tuple[Tree, Tree | None]:
    return source.cut(0, 1)


def _check(what: str, source: Source, classes: int | None) -> None:
    if classes is not None and classes < 1:
        raise UserError(f"{what}: classes must be at least 1, not {classes}")
    if isinstance(source, Stored):
        _check_tensors(what, source)
    if len(source) == 0:
        raise UserError(f"{what} is empty")
    labels = source.all_labels() if isinstance(source, Stored) else _first(source)[1]
    if classes is not None:
        check_labels(what, labels, classes)


def _check_tensors(what: str, source: Stored) -> None:
    samples = -1
    for kind, tree in (("inputs", source.inputs), ("labels", source.labels)):
        for place, tensor in leaves(tree) if tree is not None else ():
            named = f"{what}: {kind}{place}"
            if tensor.device.type != "cpu":
                raise UserError(f"{named}: tensors must be in host memory (a workload moves its batches)")
            if tensor.ndim < 1:
                raise UserError(f"{named} are one number; the first dimension must be the samples")
            samples = len(tensor) if samples < 0 else samples
            if len(tensor) != samples:
                raise UserError(f"{what}: {samples} inputs but {kind}{place} of shape {tuple(tensor.shape)}")
            check_finite(named, tensor)


def check_labels(what: str, labels: Tree | None, classes: int) -> None:
    """Classes are int64 in [0, classes)."""
    if not isinstance(labels, Tensor) or labels.dtype != torch.int64:
        kind = labels.dtype if isinstance(labels, Tensor) else type(labels).__name__
        raise UserError(f"{what}: labels of classes must be int64, not {kind}")
    counted = labels if labels.ndim == 1 else labels[labels != IGNORED]
    if not counted.numel():
        raise UserError(f"{what}: every label is {IGNORED}, which means that it does not count")
    low, high = int(counted.min()), int(counted.max())
    if low < 0:
        raise UserError(
            f"{what}: labels go from {low} to {high}, but classes are counted from 0 "
            "(targets that are numbers, not classes, must be floating)"
        )
    if high >= classes:
        raise UserError(f"{what}: labels go from {low} to {high}, but must be in [0, {classes})")


def _check_alike(what: str, one: Tree | None, other: Tree | None) -> None:
    if (one is None) != (other is None):
        raise UserError(f"{what}: {'only the test' if one is None else 'only the training'} set has them")
    if one is None or other is None:
        return
    unlike = difference(of_samples(one), of_samples(other))
    if unlike is not None:
        raise UserError(f"{what} differ: {unlike}")


def _check_normalisation(data: Dataset) -> None:
    if not data.mean and not data.std:
        return
    if len(data.mean) != len(data.std) or len(data.mean) != data.shape[0]:
        raise UserError(f"{data.name}: mean and std need one number per channel ({data.shape[0]})")
    if any(not s > 0 for s in data.std):
        raise UserError(f"{data.name}: std must be positive, not {data.std}")
