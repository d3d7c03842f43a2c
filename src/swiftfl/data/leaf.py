"""From what users have (numbers, lists, NumPy arrays, pandas columns, images) to tensors; nothing is guessed.

Tensors and arrays are not copied where torch can read them in place.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from swiftfl.data.frames import column_array, frame_array, is_frame, library_of
from swiftfl.data.tree import Tree
from swiftfl.errors import UserError

_KINDS = {"O": "objects", "U": "text", "S": "bytes", "M": "dates", "m": "time spans", "V": "records"}
_REMEDY = {"O": "make them one array of numbers", "U": "encode it as numbers first"}


def as_tree(value: object, what: str) -> Tree:
    """A sample (or columns of samples) as a tree of tensors; lists of numbers are one tensor."""
    if isinstance(value, Mapping):
        if not value:
            raise UserError(f"{what} is an empty dict")
        return {str(key): as_tree(part, f"{what}, entry {key!r}") for key, part in value.items()}
    if isinstance(value, tuple) or (isinstance(value, list) and not _numbers(value)):
        if not value:
            raise UserError(f"{what} is an empty {type(value).__name__}")
        return tuple(as_tree(part, f"{what}, part {k}") for k, part in enumerate(value))
    return as_tensor(value, what)


def as_tensor(value: object, what: str) -> Tensor:
    """Numbers of any kind as a tensor in host memory."""
    if isinstance(value, Tensor):
        if value.layout is not torch.strided:
            raise UserError(f"{what}: sparse tensors are not supported; give to_dense() of them")
        if value.device.type != "cpu":
            raise UserError(f"{what}: tensors must be in host memory (a workload moves its batches)")
        return value.detach()
    if value is None:
        raise UserError(f"{what} is None")
    if isinstance(value, str | bytes):
        raise UserError(f"{what} is text: encode it as numbers first, or name the inputs (inputs=[...])")
    if library_of(value) == "pandas" and hasattr(value, "to_numpy"):
        return _from_array(frame_array(value, what) if is_frame(value) else column_array(value, what), what)
    if hasattr(value, "__iter__") and not hasattr(value, "__len__") and not hasattr(value, "__array__"):
        raise UserError(
            f"{what} is a {type(value).__name__}, which is used up when it is read: give an array"
        )
    return _from_array(_array(value, what), what)


def _array(value: object, what: str) -> npt.NDArray[np.generic]:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:  # e.g. rows of different lengths
        reason = str(error).splitlines()[0]
        raise UserError(f"{what}: {type(value).__name__} cannot be read as numbers: {reason}") from None
    kind = array.dtype.kind
    if kind in _KINDS:
        held = _KINDS[kind]
        if kind == "O" and not isinstance(value, np.ndarray) and array.ndim == 0:
            raise UserError(f"{what} is a {type(value).__name__}, not numbers")
        if kind == "O" and array.size and all(isinstance(entry, str) for entry in array.reshape(-1)[:100]):
            kind, held = "U", "text"
        raise UserError(
            f"{what}: holds {held}, not numbers; {_REMEDY.get(kind, 'turn them into numbers first')}"
        )
    return array


def _from_array(array: npt.NDArray[np.generic], what: str) -> Tensor:
    kind, size = array.dtype.kind, array.dtype.itemsize
    if kind == "u" and size > 1:
        if array.size and int(array.max()) > np.iinfo(np.int64).max:
            raise UserError(f"{what}: holds whole numbers that int64 cannot")
        array = array.astype(np.int64)
    elif kind == "f" and size > 8:
        array = array.astype(np.float64)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()  # torch reads neither in place
    return torch.from_numpy(array)


def _numbers(value: object) -> bool:
    """Whether a list is one of numbers, at any depth."""
    if isinstance(value, list):
        return bool(value) and all(map(_numbers, value))
    return isinstance(value, int | float | np.number)
