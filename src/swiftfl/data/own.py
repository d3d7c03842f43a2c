"""`as_dataset`: whatever data a user has, as a `Dataset`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np
from torch import Tensor

from swiftfl.data.columns import Choices, GivenData, read_given
from swiftfl.data.dataset import Dataset, check_labels
from swiftfl.data.frames import library_of
from swiftfl.data.partition import Indices, Partition
from swiftfl.data.registry import dataset
from swiftfl.data.source import Chained, Source, Stored, joined
from swiftfl.data.tree import difference, of_samples
from swiftfl.errors import UserError, in_one_line

MEMORY = 1e9
"""Bytes of samples that are kept in memory, unless another number is given."""


def as_dataset(
    train: object,
    test: object = None,
    *,
    clients: int | None = None,
    groups: object = None,
    classes: int | None = None,
    label: str | None = None,
    inputs: str | Sequence[str] | None = None,
    memory: float = MEMORY,
    name: str = "data",
) -> Dataset:
    """Data of any kind, as every engine takes them.

    `train` (and `test`, of the same structure) is one of these:

    - columns: (inputs, labels), (a, b, labels), inputs alone, or a dict with an entry "labels"; each a
      tensor, a NumPy array, a pandas object, a list of numbers, or a tuple or dict of such;
    - a pandas table; `label` names the column of the labels, `inputs` those of the inputs (else all others);
    - a map-style torch dataset or a Hugging Face dataset, whose samples have the structure of columns. It is
      read once if it fits in `memory` bytes, else by position whenever a sample is needed;
    - a *list* of any of these, one per client, or a function from a client's number to its data, with
      `clients`;
    - the name of a dataset of `swiftfl list datasets`, or a `Dataset`.

    A label of whole numbers is a class (`classes` of them; counted unless given), one of floating numbers a
    target. `groups` has the group of each training sample (a user, a hospital), or names the entry that has.
    Without `test`, models are evaluated on the training set, and a note says so.

    >>> as_dataset((np.zeros((6, 4), np.float32), [0, 1, 2, 0, 1, 2])).classes
    3
    """
    if isinstance(train, Dataset | str):
        options = {"test": test, "clients": clients, "groups": groups, "classes": classes}
        _refuse_options(train, {**options, "label": label, "inputs": inputs})
        return dataset(train) if isinstance(train, str) else train
    column = groups if isinstance(groups, str) else None
    chosen = inputs if inputs is None or isinstance(inputs, str) else tuple(inputs)
    choices = Choices(label, chosen, column, _checked_bytes(memory))
    given, parts = _read(train, f"{name}: train", clients, choices)
    if parts is not None and groups is not None:
        raise UserError(f"{name}: data that are split by client have no groups=: leave it out")
    notes = [given.note]
    held_out = given
    if test is None:
        notes.append(f"{name}: there is no test set, so models are evaluated on the training set")
    else:
        held_out, _ = _read(test, f"{name}: test", clients, choices)
        notes.append(held_out.note)
        if held_out.roles.kind != given.roles.kind:
            raise UserError(f"{name}: training and test samples differ: {_form(given)} and {_form(held_out)}")
    return Dataset(
        name,
        given.source,
        held_out.source,
        classes=_classes(name, given.source, held_out.source) if classes is None else classes,
        groups=_group_numbers(given.groups if column is not None else groups, len(given.source), name),
        parts=parts,
        roles=given.roles,
        notes=tuple(note for note in notes if note is not None),
    )


def _checked_bytes(memory: object) -> float:
    if not isinstance(memory, int | float) or not memory >= 0:
        raise UserError(f"memory must be a number of bytes, not {memory!r}")
    return memory


def _read(
    value: object, what: str, clients: int | None, choices: Choices
) -> tuple[GivenData, Partition | None]:
    """One set of samples; data that come by client are put one after the other, with who holds what."""
    if isinstance(value, list):
        each = value
    elif _is_function(value):
        if clients is None:
            raise UserError(f"{what} is a function of the client: say how many there are (clients=)")
        each = [_by_function(value, k, what) for k in range(clients)]
    else:
        return read_given(value, what, choices), None
    if clients is not None and clients != len(each):
        raise UserError(f"{what} has data for {len(each)} clients, but there are {clients} clients")
    if not each:
        raise UserError(f"{what} is an empty list; it must have one dataset per client")
    per_client = Choices(choices.label, choices.inputs, choices.groups, choices.memory / len(each))
    found = [_of_client(part, f"{what}, client {k}", per_client) for k, part in enumerate(each)]
    first = found[0]
    for k, other in enumerate(found[1:], 1):
        unlike = _unlike(first, other)
        if unlike is not None:
            raise UserError(f"{what}: the samples of clients 0 and {k} differ: {unlike}")
    ends = np.cumsum([0, *(len(given.source) for given in found)])
    parts = Partition("given", tuple(np.arange(a, b) for a, b in pairwise(ends.tolist())))
    note = next((given.note for given in found if given.note is not None), None)
    return GivenData(_one_after_the_other([given.source for given in found]), first.roles, note=note), parts


def _by_function(function: object, client: int, what: str) -> object:
    """What a function of the user's own gives for a client."""
    try:
        return function(client)  # type: ignore[operator]
    except UserError:
        raise
    except Exception as error:  # whatever it may raise
        raise UserError(f"{what}: the function failed for client {client}: {in_one_line(error)}") from error


def _of_client(value: object, what: str, choices: Choices) -> GivenData:
    if isinstance(value, tuple) and len(value) == 2 and np.ndim(value[1]) == 0 and value[1] is not None:
        raise UserError(
            f"{what}: a list has one dataset per client, and this is one sample; "
            "for a list of samples give its columns, (inputs, labels)"
        )
    given = read_given(value, what, choices)
    if len(given.source) == 0:
        raise UserError(f"{what} has no samples")
    return given


def _is_function(value: object) -> bool:
    return isinstance(value, Callable) and not hasattr(value, "__getitem__") and library_of(value) != "torch"  # type: ignore[arg-type]


def _one_after_the_other(sources: list[Source]) -> Source:
    stored = [source for source in sources if isinstance(source, Stored)]
    if len(stored) == len(sources):
        return joined([(source.inputs, source.labels) for source in stored])
    return Chained(sources)


def _unlike(one: GivenData, other: GivenData) -> str | None:
    if one.roles.kind != other.roles.kind:
        return f"{_form(one)} and {_form(other)}"
    for a, b in zip(one.source.cut(0, 1), other.source.cut(0, 1), strict=True):
        if a is not None and b is not None and (unlike := difference(of_samples(a), of_samples(b))):
            return unlike
    return None


def _form(given: GivenData) -> str:
    return {"alone": "inputs only", "pair": "(input, label)", "last": "a tuple with a label"}.get(
        given.roles.kind, "a dict with a label"
    )


def _classes(name: str, *sources: Source) -> int | None:
    """How many classes whole-numbered labels have; None for targets, and where there are no labels."""
    first = sources[0].cut(0, 1)[1]
    if not isinstance(first, Tensor) or first.is_floating_point() or first.is_complex():
        return None
    every = [found for source in sources if isinstance(found := source.all_labels(), Tensor)]
    labels = [found for found in every if found.numel() and found.dtype == first.dtype]
    classes = 1 + max([0, *(int(found.max()) for found in labels)])
    for found in labels:
        check_labels(name, found, classes)
    return classes


def _group_numbers(groups: object, samples: int, name: str) -> Indices | None:
    """Groups of any kind (numbers, names) as numbers, in the order of their names."""
    if groups is None:
        return None
    values = np.asarray(groups.numpy() if isinstance(groups, Tensor) else groups)
    if values.ndim != 1 or values.size != samples:
        raise UserError(
            f"{name}: groups must have one entry per training sample ({samples}), not shape {values.shape}"
        )
    if values.dtype.kind == "O":
        values = values.astype(str)
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def _refuse_options(train: object, options: Mapping[str, object]) -> None:
    for option, value in options.items():
        if value is not None:
            kind = f"the name {train!r}" if isinstance(train, str) else "a Dataset"
            raise UserError(f"train is {kind}, which has everything with it: leave {option}= out")
