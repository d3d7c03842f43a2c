"""Partitions from a word, as a command line has them: "iid", "label_skew:0.5", "by_size:3,2,1"."""

from __future__ import annotations

from swiftfl.data import partitions
from swiftfl.data.partition import Indices, Partition
from swiftfl.errors import UserError

FORMS = (
    "iid",
    "cyclic_classes",
    "label_skew:DEGREE",
    "dirichlet:ALPHA",
    "by_size:SHARE,SHARE,...",
    "bootstrap:SAMPLES",
    "from_file:PATH",
)


def partition(spec: str, labels: Indices, clients: int, seed: int, classes: int | None = None) -> Partition:
    """The partition that `spec` names.

    >>> import numpy as np
    >>> partition("label_skew:0.5", np.arange(40) % 4, clients=4, seed=0).sizes
    (10, 10, 10, 10)
    """
    name, colon, value = spec.partition(":")
    if name in ("iid", "cyclic_classes") and not colon:
        if name == "iid":
            return partitions.iid(labels, clients, seed)
        return partitions.cyclic_classes(labels, clients, seed, classes)
    if name == "label_skew":
        return partitions.label_skew(labels, clients, seed, _number(spec, value), classes)
    if name == "dirichlet":
        return partitions.dirichlet(labels, clients, seed, _number(spec, value), classes)
    if name == "by_size":
        return partitions.by_size(labels, clients, seed, [_number(spec, v) for v in value.split(",")])
    if name == "bootstrap":
        return partitions.bootstrap(labels, clients, seed, _whole(spec, value))
    if name == "from_file" and value:
        return partitions.from_file(labels, clients, value)
    raise _unknown(spec)


def _number(spec: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise _unknown(spec) from None


def _whole(spec: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise _unknown(spec) from None


def _unknown(spec: str) -> UserError:
    return UserError(f"partition {spec!r} is none of {', '.join(FORMS)}")
