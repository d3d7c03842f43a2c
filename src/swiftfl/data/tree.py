"""Samples of any structure: a tensor, or tuples and dicts of such structures, nested as one likes.

The structure of a sample is the structure of a batch: its tensors have one more dimension, the samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

Tree: TypeAlias = Tensor | tuple["Tree", ...] | dict[str, "Tree"]
Signature: TypeAlias = tuple[tuple[str, tuple[int, ...], torch.dtype], ...]
"""Of one sample: for each of its tensors where it stands, its shape and its type."""


def map_tree(change: Callable[[Tensor], Tensor], tree: Tree) -> Tree:
    """The same structure with every tensor changed.

    >>> map_tree(lambda t: t + 1, {"a": torch.tensor(1), "b": (torch.tensor(2),)})
    {'a': tensor(2), 'b': (tensor(3),)}
    """
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, dict):
        return {key: map_tree(change, value) for key, value in tree.items()}
    return tuple(map_tree(change, value) for value in tree)


def leaves(tree: Tree, place: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor, with its place: "" for a tensor alone, "['mask']" in a dict, "[1]" in a tuple."""
    if isinstance(tree, Tensor):
        yield place, tree
        return
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in inner:
        yield from leaves(value, f"{place}[{key!r}]")


def join(join_tensors: Callable[[list[Tensor]], Tensor], trees: Sequence[Tree]) -> Tree:
    """Many trees of one structure as one, their tensors joined by `torch.stack` or `torch.cat`."""
    first = trees[0]
    if isinstance(first, Tensor):
        return join_tensors([tree for tree in trees if isinstance(tree, Tensor)])
    if isinstance(first, dict):
        dicts = [tree for tree in trees if isinstance(tree, dict)]
        return {key: join(join_tensors, [tree[key] for tree in dicts]) for key in first}
    tuples = [tree for tree in trees if isinstance(tree, tuple)]
    return tuple(join(join_tensors, [tree[k] for tree in tuples]) for k in range(len(first)))


def signature(tree: Tree) -> Signature:
    """What all samples must have in common; dicts are alike whatever the order of their keys.

    >>> signature((torch.zeros(3), torch.tensor(1)))
    (('[0]', (3,), torch.float32), ('[1]', (), torch.int64))
    """
    found = ((place, tuple(tensor.shape), tensor.dtype) for place, tensor in leaves(tree))
    return tuple(sorted(found, key=lambda entry: entry[0]))


def of_samples(tree: Tree) -> Signature:
    """The signature of one sample of a batch."""
    return tuple((place, shape[1:], dtype) for place, shape, dtype in signature(tree))


def difference(one: Signature, other: Signature) -> str | None:
    """Where two signatures differ first, in words; None if they are the same.

    >>> difference(signature(torch.zeros(3)), signature(torch.zeros(4)))
    '(3,) torch.float32 and (4,) torch.float32'
    """
    if [entry[0] for entry in one] != [entry[0] for entry in other]:
        return f"{structure(one)} and {structure(other)}"
    for (place, *a), (_, *b) in zip(one, other, strict=True):
        if a != b:
            at = f" at {place}" if place else ""
            return f"{a[0]} {a[1]} and {b[0]} {b[1]}{at}"
    return None


def structure(of: Signature) -> str:
    """The places of a signature's tensors, in words.

    >>> structure(signature(torch.zeros(2))), structure(signature({"a": torch.zeros(2)}))
    ('one tensor', "tensors at ['a']")
    """
    places = [place for place, *_ in of]
    return "one tensor" if places == [""] else f"tensors at {', '.join(places)}"


def size_in_bytes(tree: Tree) -> int:
    return sum(tensor.numel() * tensor.element_size() for _, tensor in leaves(tree))
