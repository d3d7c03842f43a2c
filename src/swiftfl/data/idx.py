"""IDX files, the format of MNIST and its relatives; plain or compressed.

The header is checked before anything is allocated: what it promises must be allowed, and the file must
hold exactly that.
"""

from __future__ import annotations

import gzip
import math
import zlib
from io import BufferedIOBase
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from swiftfl.errors import UserError


def read_idx(path: Path, most: int, item: tuple[int, ...]) -> Tensor:
    """A uint8 tensor of at most `most` items of this shape."""
    try:
        if path.suffix == ".gz":
            with gzip.open(path, "rb") as unpacked:
                return _read(unpacked, path, most, item)
        with path.open("rb") as plain:
            return _read(plain, path, most, item)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None


def find_idx(folder: Path, name: str) -> Path | None:
    """The file of this name in the folder, compressed or not."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    return None


def _read(opened: BufferedIOBase, path: Path, most: int, item: tuple[int, ...]) -> Tensor:
    dimensions = 1 + len(item)
    header = opened.read(4 + 4 * dimensions)
    if header[:4] != bytes((0, 0, 8, dimensions)) or len(header) < 4 + 4 * dimensions:
        raise UserError(f"{path}: not an IDX file of bytes in {dimensions} dimensions")
    count, *shape = (int(n) for n in np.frombuffer(header, ">u4", offset=4))
    if tuple(shape) != item or not 1 <= count <= most:
        raise UserError(f"{path}: holds {count} items of {tuple(shape)}, not up to {most} of {item}")
    size = count * math.prod(item)
    body = opened.read(size + 1)
    if len(body) != size:
        raise UserError(f"{path}: the header promises {size} bytes, the file has {_size(len(body), size)}")
    return torch.frombuffer(bytearray(body), dtype=torch.uint8).view(count, *item)


def _size(found: int, promised: int) -> str:
    return "more" if found > promised else str(found)
