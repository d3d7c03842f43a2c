"""Fashion-MNIST: 70,000 grey images of clothes, 28 x 28, from IDX files on this machine."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from swiftfl.data.dataset import Dataset
from swiftfl.data.idx import find_idx, read_idx
from swiftfl.data.registry import DATASETS
from swiftfl.data.source import Stored
from swiftfl.errors import UserError

DEBIAN = Path("/usr/share/datasets/fashion-mnist")  # where the package dataset-fashion-mnist puts them


@DATASETS.add("fashion_mnist")
def fashion_mnist(folder: str | Path | None = None) -> Dataset:
    """Fashion-MNIST, from `folder` (or its FashionMNIST/raw, torchvision's layout), else where Debian's
    package puts it."""
    root = DEBIAN if folder is None else Path(folder)
    return Dataset(
        "fashion_mnist",
        Stored(*_part(root, "train", 60_000)),
        Stored(*_part(root, "t10k", 10_000)),
        classes=10,
        mean=(0.2860,),
        std=(0.3530,),
    )


def _part(root: Path, prefix: str, most: int) -> tuple[Tensor, Tensor]:
    images = read_idx(_find(root, f"{prefix}-images-idx3-ubyte"), most, (28, 28))
    labels = read_idx(_find(root, f"{prefix}-labels-idx1-ubyte"), most, ())
    return images.unsqueeze(1), labels.long()


def _find(root: Path, name: str) -> Path:
    for folder in (root, root / "FashionMNIST" / "raw"):
        path = find_idx(folder, name)
        if path is not None:
            return path
    raise UserError(
        f"fashion_mnist: no {name} or {name}.gz in {root} "
        "(install Debian's package dataset-fashion-mnist, or name the folder that has the files)"
    )
