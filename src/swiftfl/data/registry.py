"""Datasets by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

from swiftfl.data.cifar10 import cifar10
from swiftfl.data.dataset import Dataset
from swiftfl.data.digits import digits
from swiftfl.data.fashion_mnist import fashion_mnist
from swiftfl.data.synthetic import synthetic
from swiftfl.errors import UserError

DATASETS: dict[str, Callable[..., Dataset]] = {
    load.__name__: load for load in (digits, fashion_mnist, cifar10, synthetic)
}


def dataset(name: str, folder: str | Path | None = None, **options: object) -> Dataset:
    """The named dataset, from `folder` where it comes from files.

    >>> dataset("synthetic", samples=50, shape=3, classes=2).shape
    (3,)
    """
    if name not in DATASETS:
        raise UserError(f"no dataset is called {name!r}; there are {', '.join(sorted(DATASETS))}")
    load = DATASETS[name]
    known = inspect.signature(load).parameters
    if folder is not None:
        if "folder" not in known:
            raise UserError(f"dataset {name} comes from no folder; leave {folder} out")
        options["folder"] = folder
    for option in options:
        if option not in known:
            raise UserError(f"dataset {name} has no option {option!r}")
    needed = [key for key, p in known.items() if p.default is p.empty and key not in options]
    if needed:
        raise UserError(f"dataset {name} needs {', '.join(needed)}")
    return load(**options)
