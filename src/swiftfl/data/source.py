"""Where samples are when a batch asks for them: in memory, behind a dataset of one's own, or with clients.

A source gives the samples at any positions, as inputs and labels. Labels are None where the loss takes the
whole batch.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from swiftfl.data.leaf import as_tree
from swiftfl.data.partition import Indices
from swiftfl.data.roles import Roles
from swiftfl.data.tree import Tree, difference, join, leaves, map_tree, signature, size_in_bytes
from swiftfl.errors import UserError, in_one_line

_log = logging.getLogger(__name__)
Rows: TypeAlias = tuple[Tree, Tree | None]


class Source(Protocol):
    """Samples by position."""

    def __len__(self) -> int: ...

    def take(self, positions: Indices) -> Rows:
        """Inputs and labels of the samples at these positions, in this order."""

    def cut(self, start: int, stop: int) -> Rows:
        """Those from `start` to before `stop`."""

    def all_labels(self) -> Tree | None:
        """The labels of all samples, in order."""


@dataclass(frozen=True, eq=False)
class Stored:
    """Samples as tensors, one row each."""

    inputs: Tree
    labels: Tree | None

    def __len__(self) -> int:
        return next(len(tensor) for _, tensor in leaves(self.inputs))

    def take(self, positions: Indices) -> Rows:
        rows = torch.from_numpy(positions)
        if self._device.type != "cpu":
            rows = rows.to(self._device)

        def select(tensor: Tensor) -> Tensor:
            return tensor.index_select(0, rows)

        return map_tree(select, self.inputs), None if self.labels is None else map_tree(select, self.labels)

    @cached_property
    def _device(self) -> torch.device:
        return next(tensor.device for _, tensor in leaves(self.inputs))

    def cut(self, start: int, stop: int) -> Rows:
        def piece(tensor: Tensor) -> Tensor:
            return tensor[start:stop]

        return map_tree(piece, self.inputs), None if self.labels is None else map_tree(piece, self.labels)

    def all_labels(self) -> Tree | None:
        return self.labels


class Indexed(Protocol):
    """A map-style dataset: a length, and samples by position."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> object: ...


class Read:
    """Samples that are read from a dataset whenever they are needed.

    Of those that are read first as many are kept as fit in `memory` bytes, and never replaced: an epoch
    passes over all samples once, so that a cache of the newest ones would give away each before its next use.
    """

    def __init__(self, dataset: Indexed, roles: Roles, memory: float, what: str) -> None:
        self._dataset, self._roles, self._what = dataset, roles, what
        first = self._read(0)
        self._signature = signature(first)
        self.sample_bytes = max(1, size_in_bytes(first))
        self._room = int(memory // self.sample_bytes)
        self._kept: dict[int, Tree] = {}
        self._labels: Tree | None = None  # of all samples, once somebody has asked for them

    def __len__(self) -> int:
        return len(self._dataset)

    @property
    def kept(self) -> int:
        """How many samples are in memory."""
        return len(self._kept)

    def take(self, positions: Indices) -> Rows:
        whole = join(torch.stack, [self._sample(int(k)) for k in positions])
        for _, tensor in leaves(whole):
            check_finite(self._what, tensor)
        return divided(whole, self._roles)

    def cut(self, start: int, stop: int) -> Rows:
        return self.take(np.arange(start, min(stop, len(self))))

    def all(self) -> Stored:
        """Every sample, read once, in order."""
        _log.info("%s: reading %d samples into memory", self._what, len(self))
        return Stored(*self.cut(0, len(self)))

    def all_labels(self) -> Tree | None:
        """Every sample is read once for it, at the first call."""
        if self._labels is None and divided(self._sample(0), self._roles)[1] is not None:
            _log.info("%s: reading %d samples for their labels", self._what, len(self))
            found = (divided(self._sample(k), self._roles)[1] for k in range(len(self)))
            self._labels = join(torch.stack, [label for label in found if label is not None])
        return self._labels

    def _sample(self, k: int) -> Tree:
        known = self._kept.get(k)
        if known is not None:
            return known
        sample = self._read(k)
        unlike = difference(self._signature, signature(sample))
        if unlike is not None:
            raise UserError(
                f"{self._what}: samples 0 and {k} differ ({unlike}); "
                "make them alike, for example pad them to one length"
            )
        if len(self._kept) < self._room:
            self._kept[k] = sample
        return sample

    def _read(self, k: int) -> Tree:
        try:
            sample = self._dataset[k]
        except UserError:
            raise
        except Exception as error:  # whatever a dataset of one's own may raise
            raise UserError(f"{self._what}: sample {k} cannot be read: {in_one_line(error)}") from error
        what = f"{self._what}: sample {k}"
        return as_tree(self._roles.chosen(sample, what), what)


class Chained:
    """The samples of several sources, one after the other."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._starts = np.concatenate([[0], np.cumsum([len(source) for source in sources])])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def take(self, positions: Indices) -> Rows:
        owner = np.searchsorted(self._starts, positions, side="right") - 1
        order = np.argsort(owner, kind="stable")
        found = [
            self._sources[k].take(positions[order][owner[order] == k] - self._starts[k])
            for k in np.unique(owner)
        ]
        back = np.argsort(order, kind="stable")
        return joined(found).take(back)

    def cut(self, start: int, stop: int) -> Rows:
        return self.take(np.arange(start, min(stop, len(self))))

    def all_labels(self) -> Tree | None:
        found = [source.all_labels() for source in self._sources]
        labels = [label for label in found if label is not None]
        return join(torch.cat, labels) if labels else None


def divided(whole: Tree, roles: Roles) -> Rows:
    """Inputs and labels; labels that are whole numbers of any kind become int64."""
    inputs, labels = roles.split(whole)
    return inputs, None if labels is None else map_tree(_label, labels)


def _label(tensor: Tensor) -> Tensor:
    return tensor if tensor.is_floating_point() or tensor.is_complex() else tensor.long()


def joined(samples: Sequence[Rows]) -> Stored:
    """Samples of one structure, one after the other."""
    labels = [label for _, label in samples if label is not None]
    inputs = join(torch.cat, [inputs for inputs, _ in samples])
    return Stored(inputs, join(torch.cat, labels) if labels else None)


def check_finite(what: str, tensor: Tensor) -> None:
    if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
        raise UserError(f"{what} hold NaN or infinity: fill them in or leave such samples out")
