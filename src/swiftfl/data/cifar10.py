"""CIFAR-10: 60,000 colour images, 32 x 32, from the official binary files; never from pickles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from swiftfl.data.dataset import Dataset
from swiftfl.data.download import Archive, fetch
from swiftfl.data.registry import DATASETS
from swiftfl.data.source import Stored, joined
from swiftfl.errors import UserError
from swiftfl.files import cache_folder

FOLDER = "cifar-10-batches-bin"
TRAIN = tuple(f"data_batch_{k}.bin" for k in range(1, 6))
TEST = "test_batch.bin"
IMAGES = 10_000  # per file
RECORD = 1 + 3 * 32 * 32  # the label, then red, green and blue

OFFICIAL = Archive(
    url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    md5="c32a1d4ab5d03f1284b67883e8d87530",
    most=200_000_000,
    members={f"{FOLDER}/{name}": IMAGES * RECORD for name in (*TRAIN, TEST)},
)


@DATASETS.add("cifar10")
def cifar10(folder: str | Path | None = None, download: bool = True) -> Dataset:
    """CIFAR-10, from `folder` (or its cifar-10-batches-bin), else downloaded into it.

    Without a folder the files live in the user's cache, ~/.cache/swiftfl/cifar10.
    """
    root = cache_folder("cifar10") if folder is None else Path(folder)
    where = _find(root)
    if where is None and download:
        fetch("cifar10", OFFICIAL, root)
        where = _find(root)
    if where is None:
        raise UserError(f"cifar10: {TRAIN[0]} and its five companions are not all in {root}")
    train = joined([_read(where / name) for name in TRAIN])
    return Dataset(
        "cifar10",
        train,
        Stored(*_read(where / TEST)),
        classes=10,
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
    )


def _find(root: Path) -> Path | None:
    for folder in (root, root / FOLDER):
        if all((folder / name).is_file() for name in (*TRAIN, TEST)):
            return folder
    return None


def _read(path: Path) -> tuple[Tensor, Tensor]:
    size = path.stat().st_size
    if size != IMAGES * RECORD:
        raise UserError(f"{path}: has {size} bytes, the official file has {IMAGES * RECORD}")
    table = np.fromfile(path, np.uint8).reshape(IMAGES, RECORD)
    if int(table[:, 0].max()) > 9:
        raise UserError(f"{path}: holds a label above 9, so it is not a CIFAR-10 file")
    images = torch.from_numpy(table[:, 1:].reshape(IMAGES, 3, 32, 32))
    return images, torch.from_numpy(table[:, 0].astype(np.int64))
