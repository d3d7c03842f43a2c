"""Partitions by name, from a word as a command line has it: "iid", "label_skew:0.5", "by_size:3,2,1".

A partition of one's own is a function `(labels, clients, seed, options...) -> Partition` under
`@PARTITIONS.add("name")`. Its first option is what stands after the colon; several are written
`name:option=value,option=value`. A parameter `classes` is given the number of classes.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence

from swiftfl.data.partition import Indices, Partition
from swiftfl.errors import UserError
from swiftfl.registry import Option, Registry, options_of, suggestion
from swiftfl.settings import SettingError, checked_options

PARTITIONS: Registry[Callable[..., Partition]] = Registry("partition")


def check_spec(spec: str) -> None:
    """That there is such a partition, and that its options can be read."""
    _asked(spec)


def partition(spec: str, labels: Indices, clients: int, seed: int, classes: int | None = None) -> Partition:
    """The partition that `spec` names.

    >>> import numpy as np
    >>> partition("label_skew:0.5", np.arange(40) % 4, clients=4, seed=0).sizes
    (10, 10, 10, 10)
    """
    name, values = _asked(spec)
    make = PARTITIONS[name]
    if "classes" in options_of(make, after=3):
        values["classes"] = classes
    return make(labels, clients, seed, **values)


def _asked(spec: str) -> tuple[str, dict[str, object]]:
    """The name, and the values of all options."""
    name, colon, text = spec.partition(":")
    if name not in PARTITIONS:
        raise UserError(f"there is no partition {name!r}: {suggestion(name, map(form, PARTITIONS))}")
    options = _options(name)
    if colon and (not text or not options):
        raise UserError(f"partition {spec!r}: it is written {form(name)}")
    try:
        return name, checked_options(f"partition {name}", options, _given(text, options) if colon else {})
    except SettingError as error:
        raise UserError(f"partition {spec!r}: it is written {form(name)}, and {error}") from None


def _options(name: str) -> dict[str, Option]:
    return options_of(PARTITIONS[name], after=3, supplied=("classes",))


def _given(text: str, options: dict[str, Option]) -> dict[str, object]:
    """`value` of the first option, or `option=value,option=value`."""
    pairs = [item.partition("=") for item in text.split(",")]
    if pairs[0][0] in options and pairs[0][1]:
        return {key: value for key, _, value in pairs}
    first = next(iter(options.values()))
    return {first.name: text.split(",") if _several(first) else text}


def _several(option: Option) -> bool:
    return typing.get_origin(option.type) in (Sequence, list, tuple)


def form(name: str) -> str:
    """How a partition is written.

    >>> form("iid"), form("by_size"), form("label_skew")
    ('iid', 'by_size:SHARES,...', 'label_skew:DEGREE')
    """
    options = list(_options(name).values())
    if len(options) > 1:
        return f"{name}:{','.join(f'{o.name}={o.name.upper()}' for o in options)}"
    value = "".join(f"{o.name.upper()},..." if _several(o) else o.name.upper() for o in options)
    return f"{name}:{value}" if value else name
