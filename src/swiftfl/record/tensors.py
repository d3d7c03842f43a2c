"""Many arrays in a safetensors file, written and read without a second copy of all of them in memory.

A file has one header entry per tensor, and its header may have 100 MB: enough for 600,000 clients with
momentum, and no more. So the arrays of a checkpoint, which are named by numbers, stand as rows of one tensor
per shape and type, `rows K`, beside their names, `numbers K`. The files are ordinary ones of the format.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from swiftfl.vector import Vector

_TYPES = {
    np.dtype(name): code
    for name, code in {
        "float16": "F16", "float32": "F32", "float64": "F64", "bool": "BOOL",
        "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64",
        "uint8": "U8", "uint16": "U16", "uint32": "U32", "uint64": "U64", "complex64": "C64",
    }.items()
}  # fmt: skip
_AT_ONCE = 8 << 20  # bytes that are read
_ROWS, _NUMBERS = "rows ", "numbers "


def write_tensors(file: Path, tensors: Mapping[str, Vector | list[Vector]]) -> None:
    """Each an array, or a list of arrays of one shape: the rows of a tensor of their common type."""
    rows = {name: x if isinstance(x, list) else [x] for name, x in tensors.items()}
    types = {name: _common_type(name, of) for name, of in rows.items()}
    order = sorted(rows, key=lambda name: (-types[name].itemsize, name))  # so that numbers are aligned
    header: dict[str, object] = {}
    end = 0
    for name in order:
        x, count = rows[name][0], len(rows[name])
        begin, end = end, end + count * x.size * types[name].itemsize
        shape = (count, *x.shape) if isinstance(tensors[name], list) else x.shape
        header[name] = {"dtype": _TYPES[types[name]], "shape": shape, "data_offsets": (begin, end)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with file.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)))
        stream.write(text)
        for name in order:
            for row in rows[name]:
                stream.write(np.ascontiguousarray(row, types[name]).reshape(-1).view(np.uint8).data)


def _common_type(name: str, rows: list[Vector]) -> np.dtype[Any]:
    """As `numpy.stack` would find it."""
    if len({row.shape for row in rows}) > 1:
        raise SafetensorError(f"{name} are not all of one shape")
    found: np.dtype[Any] = np.result_type(*{row.dtype for row in rows}).newbyteorder("<")
    if found not in _TYPES:
        raise SafetensorError(f"{name} cannot be written: arrays of {found.name} are none of its types")
    return found


def write_arrays(file: Path, arrays: Mapping[str, Vector]) -> None:
    """Arrays by name; those that are alike, and whose names are numbers, as the rows of one tensor."""
    alike: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    tensors: dict[str, Vector | list[Vector]] = {}
    for name, x in arrays.items():
        if name.isdecimal():
            alike.setdefault((x.dtype.str, x.shape), []).append(name)
        else:
            tensors[name] = x
    for k, names in enumerate(alike.values()):
        tensors[f"{_NUMBERS}{k}"] = np.array([int(name) for name in names], np.int64)
        tensors[f"{_ROWS}{k}"] = [arrays[name] for name in names]
    write_tensors(file, tensors)


def read_arrays(file: Path) -> dict[str, Vector]:
    """What `write_arrays` has written; each array is one of its own, not a part of a large one."""
    found: dict[str, Vector] = {}
    expected = 0
    with safe_open(file, framework="numpy") as tensors:
        for key in tensors.keys():  # noqa: SIM118 (it is no mapping)
            if key.startswith(_NUMBERS):
                numbers = tensors.get_tensor(key)
                if numbers.dtype != np.int64 or numbers.ndim != 1:
                    raise ValueError(f"{key!r} are no numbers")
                expected += len(numbers)
                _read_rows(tensors.get_slice(_ROWS + key.removeprefix(_NUMBERS)), numbers.tolist(), found)
            elif not key.startswith(_ROWS):
                expected += 1
                found[key] = tensors.get_tensor(key)
    if len(found) != expected:
        raise ValueError("two arrays have one of its numbers")
    return found


def _read_rows(rows: object, numbers: list[int], found: dict[str, Vector]) -> None:
    shape = rows.get_shape()  # type: ignore[attr-defined]
    if not shape or shape[0] != len(numbers):
        raise ValueError(f"there are {len(numbers)} numbers for rows of shape {shape}")
    some = max(1, _AT_ONCE // (8 * max(1, math.prod(shape[1:]))))
    for start in range(0, len(numbers), some):
        names = numbers[start : start + some]
        part = rows[start : start + len(names)]  # type: ignore[index]
        found.update((str(name), np.array(x)) for name, x in zip(names, part, strict=True))
