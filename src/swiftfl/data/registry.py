"""Datasets by name.

A dataset of one's own is a function that returns a `Dataset`, under `@DATASETS.add("name")`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from swiftfl.data.dataset import Dataset
from swiftfl.errors import UserError
from swiftfl.registry import Option, Registry, absent, options_of
from swiftfl.settings import checked_options

_log = logging.getLogger(__name__)

DATASETS: Registry[Callable[..., Dataset]] = Registry("dataset", stand_in=absent)
"""Functions that load a dataset; all parameters but `folder` are options."""


def dataset_options(name: str) -> dict[str, Option]:
    return options_of(DATASETS[name], after=0, supplied=("folder",))


def has_folder(name: str) -> bool:
    return "folder" in options_of(DATASETS[name], after=0)


def dataset(name: str, folder: str | Path | None = None, **options: object) -> Dataset:
    """The named dataset, from `folder` where it comes from files.

    >>> dataset("synthetic", samples=50, shape=3, classes=2).shape
    (3,)
    """
    values = checked_options(f"dataset {name}", dataset_options(name), options, section="option ")
    if folder is not None:
        if not has_folder(name):
            raise UserError(f"dataset {name} comes from no folder; leave {folder} out")
        values["folder"] = folder
    found = DATASETS[name](**values)
    _log.debug("dataset %s: %d samples of shape %s", name, found.size, found.shape)
    return found
