"""The 1,797 handwritten digits of UCI, inside the package: a real data set that needs no download."""

from __future__ import annotations

import gzip
from importlib import resources

import numpy as np
import numpy.typing as npt
import torch

from swiftfl.data.dataset import Dataset
from swiftfl.data.registry import DATASETS
from swiftfl.data.source import Stored
from swiftfl.streams import stream

_SPLIT_SEED = 1998  # fixed, so that every run of everybody tests on the same 360 images


@DATASETS.add("digits")
def digits() -> Dataset:
    """Handwritten digits: 8 x 8 images as 64 numbers in [0, 1]; a fifth of each class is for testing.

    >>> data = digits()
    >>> data.size, tuple(data.test_inputs.shape), data.classes
    (1437, (360, 64), 10)
    """
    raw = (resources.files("swiftfl.data") / "files" / "digits.csv.gz").read_bytes()
    table = np.loadtxt(gzip.decompress(raw).decode().splitlines(), delimiter=",", dtype=np.float32)
    inputs, labels = table[:, :64] / 16.0, table[:, 64].astype(np.int64)
    test = _held_out(labels)
    train = np.setdiff1d(np.arange(labels.size), test)
    return Dataset(
        "digits",
        Stored(torch.from_numpy(inputs[train]), torch.from_numpy(labels[train])),
        Stored(torch.from_numpy(inputs[test]), torch.from_numpy(labels[test])),
        classes=10,
    )


def _held_out(labels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """A random fifth of each class: sort by (class, random), take every fifth."""
    shuffled = stream(_SPLIT_SEED, "digits-split").permutation(labels.size)
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    return np.sort(by_class[::5])
