"""Which part of a sample is its label, and what is handed to the model.

(x, y) is an input and its label; (a, b, y) two inputs and a label, the last; {"...": ..., "labels": y} inputs
by name and a label; (x,), a tensor alone and a dict without a label are inputs only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from swiftfl.data.leaf import as_tree
from swiftfl.data.tree import Tree
from swiftfl.errors import UserError
from swiftfl.registry import suggestion

LABEL_KEYS = ("labels", "label")


@dataclass(frozen=True)
class Roles:
    """How samples are divided, and put together again for a loss that takes the whole batch."""

    kind: Literal["alone", "pair", "last", "key"] = "pair"
    label: str = ""
    inputs: str | tuple[str, ...] | None = None
    """Which entries of a dict are inputs: one, which is given to the model itself, or several; None: all."""
    left_out: str | None = None
    """An entry that is neither: the name of the groups."""

    def chosen(self, sample: object, what: str) -> object:
        """A sample as it was read, without what nobody asked for."""
        if not isinstance(sample, Mapping):
            return sample
        wanted = [key for key in sample if key not in (self.label, self.left_out)]
        if self.inputs is not None:
            wanted = [self.inputs] if isinstance(self.inputs, str) else list(self.inputs)
        keys = [*wanted, *((self.label,) if self.kind == "key" else ())]
        for key in keys:
            if key not in sample:
                raise UserError(f"{what} has no entry {key!r}: {suggestion(key, map(str, sample))}")
        if not wanted:
            raise UserError(f"{what} has no inputs beside {', '.join(map(repr, sample))}")
        return {key: sample[key] for key in keys}

    def split(self, sample: Tree) -> tuple[Tree, Tree | None]:
        """Inputs and labels of a sample (or of a batch)."""
        if self.kind == "pair" and isinstance(sample, tuple):
            return sample[0], sample[1]
        if self.kind == "last" and isinstance(sample, tuple):
            return sample[:-1], sample[-1]
        if not isinstance(sample, dict):
            return sample, None
        inputs: Tree = {key: value for key, value in sample.items() if key != self.label}
        if isinstance(self.inputs, str):
            inputs = sample[self.inputs]
        return inputs, sample[self.label] if self.kind == "key" else None

    def whole(self, inputs: Tree, labels: Tree | None) -> Tree:
        """The batch as the samples were given."""
        if self.kind == "last" and isinstance(inputs, tuple) and labels is not None:
            return (*inputs, labels)
        if self.kind == "pair" and labels is not None:
            return (inputs, labels)
        named: Tree = {self.inputs: inputs} if isinstance(self.inputs, str) else inputs
        return {**named, self.label: labels} if isinstance(named, dict) and labels is not None else named


def roles_of(
    sample: object,
    label: str | None,
    inputs: str | Sequence[str] | None,
    left_out: str | None,
    what: str,
) -> Roles:
    """The roles of samples like this one; `label`, `inputs` and `left_out` name entries of a dict."""
    if isinstance(sample, Mapping):
        if not sample:
            raise UserError(f"{what} is an empty dict")
        named = [key for key in LABEL_KEYS if key in sample and key != left_out]
        key = label or (named[0] if named else "")
        wanted = inputs if inputs is None or isinstance(inputs, str) else tuple(inputs)
        return Roles("key" if key else "alone", key, wanted, left_out)
    for option, value in (("label", label), ("inputs", inputs), ("groups", left_out)):
        if value is not None:
            raise UserError(f"{option}={value!r} names an entry, but {what} has no entries with names")
    parts = as_tree(sample, what)
    if isinstance(parts, tuple) and len(parts) > 1:
        return Roles("pair" if len(parts) == 2 else "last")
    return Roles("alone")
