"""Data that a user has at hand, one set at a time, as a source of samples.

Tensors, NumPy arrays and pandas objects (alone, in tuples or in dicts) are columns of samples; torch and
Hugging Face datasets are read sample by sample. What is neither is refused with what to give instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from torch import Tensor
from torch.utils import data as torch_data

from swiftfl.data.frames import is_frame, library_of, table
from swiftfl.data.leaf import as_tree
from swiftfl.data.roles import Roles, roles_of
from swiftfl.data.source import Indexed, Read, Source, Stored, divided
from swiftfl.data.tree import leaves
from swiftfl.errors import UserError, in_one_line


@dataclass(frozen=True)
class Choices:
    """Which entries of a sample are what, and how many bytes of samples may be in memory."""

    label: str | None
    inputs: str | tuple[str, ...] | None
    groups: str | None
    memory: float


@dataclass(frozen=True)
class GivenData:
    """One set as it was given: its samples, what is a label, and each one's group if that is an entry."""

    source: Source
    roles: Roles
    groups: Sequence[object] | None = None
    note: str | None = None


def read_given(value: object, what: str, choices: Choices) -> GivenData:
    """The samples of tensors, arrays, tables or a dataset; what is none of them is refused."""
    _refuse(value, what)
    if isinstance(value, torch_data.TensorDataset):
        value = value.tensors
    if is_frame(value):
        pair, groups = table(value, what, choices.label, choices.inputs, choices.groups)
        return GivenData(_stored(pair, Roles(), what), Roles(), groups)
    if isinstance(value, Tensor | np.ndarray | tuple | Mapping) or library_of(value) == "pandas":
        return _columns(value, what, choices)
    return _samples(_formatted(value), what, choices)


def _columns(value: object, what: str, choices: Choices) -> GivenData:
    if isinstance(value, tuple) and len(value) == 2 and value[1] is None:
        value = value[0]  # (x, None): no labels
    elif isinstance(value, tuple):
        for k, part in enumerate(value):
            _refuse_dataset_inside(part, f"{what}, part {k}")
    roles = roles_of(value, choices.label, choices.inputs, choices.groups, what)
    groups = None
    if choices.groups is not None and isinstance(value, Mapping):
        groups = _entry(value, choices.groups, what)
    chosen = roles.chosen(value, what)
    return GivenData(_stored(chosen, roles, what), roles, groups)


def _stored(value: object, roles: Roles, what: str) -> Stored:
    tree = as_tree(value, what)
    for place, tensor in leaves(tree):
        if tensor.ndim == 0:
            raise UserError(f"{what}{place} is one number; the first dimension must be the samples")
    return Stored(*divided(tree, roles))


def _samples(value: Indexed, what: str, choices: Choices) -> GivenData:
    """A map-style dataset: into memory if it fits, else read by position."""
    try:
        count = len(value)
    except Exception as error:  # whatever a dataset of one's own may raise
        raise UserError(f"{what} has no length: {in_one_line(error)}") from error
    if count == 0:
        raise UserError(f"{what} is empty")
    try:
        first = value[0]
    except Exception as error:
        raise UserError(f"{what}: sample 0 cannot be read: {in_one_line(error)}") from error
    roles = roles_of(first, choices.label, choices.inputs, choices.groups, f"{what}: a sample")
    groups = None
    if choices.groups is not None:
        groups = [_entry(value[k], choices.groups, f"{what}: sample {k}") for k in range(len(value))]
    source = Read(value, roles, choices.memory, what)
    needed = source.sample_bytes * len(source)
    if needed <= choices.memory:
        return GivenData(source.all(), roles, groups)
    note = (
        f"{what}: {len(source):,} samples of {source.sample_bytes:,} bytes do not fit in "
        f"{choices.memory:,.0f} bytes (memory=), so they are read by position whenever they are needed"
    )
    return GivenData(source, roles, groups, note)


def _entry(sample: object, key: str, what: str) -> Any:
    """An entry by name; of a sample it may be text."""
    if not isinstance(sample, Mapping) or key not in sample:
        raise UserError(f"{what} has no entry {key!r}")
    return sample[key]


def _formatted(value: object) -> Indexed:
    """A Hugging Face dataset that gives plain Python objects gives arrays instead."""
    if library_of(value) == "datasets":
        dataset = cast(Any, value)
        return cast(Indexed, dataset.with_format("numpy") if dataset.format["type"] is None else dataset)
    return cast(Indexed, value)


def _refuse(value: object, what: str) -> None:
    """What cannot be data, with what to give instead."""
    kind = type(value).__name__
    if value is None:
        raise UserError(f"{what} is None: give tensors, arrays or a dataset")
    if isinstance(value, torch_data.DataLoader):
        raise UserError(
            f"{what} is a DataLoader, which makes batches itself: give its dataset (loader.dataset)"
        )
    if library_of(value) == "datasets" and kind.endswith("Dict"):
        raise UserError(f"{what} is a {kind} of several sets: give one of them, such as {what}['train']")
    if isinstance(value, torch_data.IterableDataset) or kind == "IterableDataset":
        raise UserError(
            f"{what} is an IterableDataset, whose samples have no positions: give a map-style dataset, "
            "with len() and samples by index"
        )
    if isinstance(value, Iterator):
        raise UserError(f"{what} is a {kind}, which can be read only once: give a dataset or arrays")
    if isinstance(value, str | Path):
        raise UserError(f"{what} is the text {str(value)!r}: load it first, as tensors, arrays or a dataset")
    if isinstance(value, type):
        raise UserError(f"{what} is the class {value.__name__}: give an object of it")
    if isinstance(value, bytes) or not (hasattr(value, "__len__") and hasattr(value, "__getitem__")):
        raise UserError(f"{what} is a {kind}: give tensors, arrays or a dataset, with len() and by index")


def _refuse_dataset_inside(part: object, what: str) -> None:
    if isinstance(part, torch_data.Dataset | torch_data.DataLoader) or library_of(part) == "datasets":
        raise UserError(
            f"{what} is a {type(part).__name__}: a tuple is of columns, such as (inputs, labels); "
            "give the dataset alone, or a list with one dataset per client"
        )
