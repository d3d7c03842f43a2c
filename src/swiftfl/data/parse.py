"""Partitions by name, from a word as a command line has it: "iid", "label_skew:0.5", "by_size:3,2,1".

A partition of one's own is a function `(labels, clients, seed, options...) -> Partition` under
`@PARTITIONS.add("name")`. Its first option is what stands after the colon; others follow by name, as in
"dirichlet:0.3,min=10". Some parameters are no options but given by the run: `classes`, the number of classes
(so that data without classes are refused), `groups`, the group of each sample, and `parts`, who holds what of
data that come already split.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence

import numpy as np

from swiftfl.data.partition import Indices, Partition
from swiftfl.errors import UserError, kind_of
from swiftfl.registry import Option, Registry, nearest, options_of
from swiftfl.settings import SettingError, checked_options

PARTITIONS: Registry[Callable[..., Partition]] = Registry("partition")
_SUPPLIED = ("classes", "groups", "parts")


def check_spec(spec: str) -> None:
    """That there is such a partition, and that its options can be read."""
    _asked(spec)


def needs_classes(spec: str) -> bool:
    """Whether this partition looks at classes."""
    return "classes" in options_of(PARTITIONS[_asked(spec)[0]], after=3)


def partition(
    spec: str,
    labels: Indices,
    clients: int,
    seed: int,
    classes: int | None = None,
    groups: Indices | None = None,
    parts: Partition | None = None,
) -> Partition:
    """The partition that `spec` names.

    >>> import numpy as np
    >>> partition("label_skew:0.5", np.arange(40) % 4, clients=4, seed=0).sizes
    (10, 10, 10, 10)
    """
    name, values = _asked(spec)
    make = PARTITIONS[name]
    takes = options_of(make, after=3)
    supplied = {"classes": classes, "groups": groups, "parts": parts}
    made = make(labels, clients, seed, **values, **{key: supplied[key] for key in supplied if key in takes})
    return _checked(name, made, len(labels), clients)


def _checked(name: str, made: object, samples: int, clients: int) -> Partition:
    """What a partition's function made, which may be of the user's own."""
    if not isinstance(made, Partition):
        raise UserError(f"partition {name} must return a Partition, not {kind_of(made)}")
    if len(made) != clients:
        raise UserError(f"partition {name} must have a part for each of {clients} clients, not {len(made)}")
    parts: tuple[object, ...] = made.parts
    for client, part in enumerate(parts):
        if not (isinstance(part, np.ndarray) and part.ndim == 1 and part.dtype.kind in "iu"):
            raise UserError(f"partition {name}: the part of client {client} must be a flat array of integers")
    everything = np.concatenate(made.parts)
    wrong = everything[(everything < 0) | (everything >= samples)]
    if wrong.size:
        raise UserError(f"partition {name}: there is no sample {wrong[0]}; samples are 0 to {samples - 1}")
    return made


def _asked(spec: str) -> tuple[str, dict[str, object]]:
    """The name, and the values of all options."""
    name, colon, text = spec.partition(":")
    if name not in PARTITIONS:
        near = nearest(name, PARTITIONS)
        hint = f"did you mean {form(near)}? (" if near else "choose from "
        listed = ", ".join(map(form, PARTITIONS))
        raise UserError(f"there is no partition {name!r}: {hint}{listed}{')' if near else ''}")
    options = _options(name)
    if colon and (not text or not options):
        raise UserError(f"partition {spec!r}: it is written {form(name)}")
    try:
        return name, checked_options(f"partition {name}", options, _given(text, options) if colon else {})
    except SettingError as error:
        raise UserError(f"partition {spec!r}: it is written {form(name)}, and {error}") from None


def _options(name: str) -> dict[str, Option]:
    return options_of(PARTITIONS[name], after=3, supplied=_SUPPLIED)


def _given(text: str, options: dict[str, Option]) -> dict[str, object]:
    """The value of the first option, then `option=value` for others; the first may have its name, too."""
    first = next(iter(options.values()))
    if _several(first) and len(options) == 1:
        return {first.name: text.split(",")}
    if len(options) == 1 and not text.startswith(f"{first.name}="):
        return {first.name: text}
    given: dict[str, object] = {}
    for k, item in enumerate(text.split(",")):
        key, equals, value = item.partition("=")
        if not equals and k > 0:
            raise SettingError(repr(item), "must be option=value")
        given[key if equals else first.name] = value if equals else item
    return given


def _several(option: Option) -> bool:
    return typing.get_origin(option.type) in (Sequence, list, tuple)


def form(name: str) -> str:
    """How a partition is written; what may be left out is in brackets.

    >>> form("iid"), form("by_size"), form("label_skew"), form("dirichlet")
    ('iid', 'by_size:SHARES,...', 'label_skew:DEGREE', 'dirichlet:ALPHA[,min=MIN]')
    """
    options = list(_options(name).values())
    if not options:
        return name
    first = f"{options[0].name.upper()},..." if _several(options[0]) else options[0].name.upper()
    others = (f",{o.name}={o.name.upper()}" for o in options[1:])
    written = (text if o.required else f"[{text}]" for o, text in zip(options[1:], others, strict=True))
    return f"{name}:{first}{''.join(written)}"
