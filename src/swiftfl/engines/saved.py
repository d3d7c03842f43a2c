"""Saving the parts of a run as one JSON tree with a pool of arrays, and reading such a tree with checks.

A component gives `state(pool)`, a tree of plain values in which an array is the name of its place in the
pool, and takes it back with `restore(saved)`. Each array is stored once, so that shared models stay
shared. A file may have been changed by hand: `Saved` checks type, range and shape of whatever is read,
and names the place of what is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from swiftfl.errors import UserError
from swiftfl.vector import Vector, finite

_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_LARGEST = 1 << 62


class Pool:
    """Arrays by name, each stored once."""

    def __init__(self) -> None:
        self.arrays: dict[str, Vector] = {}
        self._names: dict[int, str] = {}

    def put(self, x: Vector) -> str:
        name = self._names.get(id(x))
        if name is None:
            name = self._names[id(x)] = str(len(self.arrays))
            self.arrays[name] = np.asarray(x)
        return name


def pack_number(x: float) -> float | str:
    """JSON has no word for what is not finite."""
    x = float(x)
    return x if math.isfinite(x) else str(x)


class Arrays:
    """The arrays of a saved tree; `like` is a model of the run that reads them, `message` what it sends."""

    def __init__(self, arrays: Mapping[str, Vector], like: Vector, message: Vector) -> None:
        self.arrays, self.like, self.message = arrays, like, message
        self._finite: dict[str, bool] = {}

    def finite(self, name: str) -> bool:
        """Looked at once for each array."""
        if name not in self._finite:
            with np.errstate(all="ignore"):
                self._finite[name] = finite(self.arrays[name])
        return self._finite[name]


class Saved:
    """One value of a saved tree, and the place where it is."""

    __slots__ = ("_arrays", "_key", "_parent", "value")

    def __init__(
        self, value: object, arrays: Arrays, parent: Saved | None = None, key: str | int = ""
    ) -> None:
        self.value = value
        self._arrays, self._parent, self._key = arrays, parent, key

    @property
    def place(self) -> str:
        if self._parent is None:
            return str(self._key)
        if isinstance(self._key, int):
            return f"{self._parent.place}[{self._key}]"
        return f"{self._parent.place}.{self._key}".lstrip(".")

    def fail(self, what: str) -> NoReturn:
        place = self.place or "its tree"
        raise UserError(f"the checkpoint is damaged: {place} {what}; remove it to start again from step 1")

    # --- trees ---------------------------------------------------------------------------------

    def __getitem__(self, key: str) -> Saved:
        if not isinstance(self.value, Mapping):
            self.fail("is not an object")
        if key not in self.value:
            self.fail(f"has no {key!r}")
        return Saved(self.value[key], self._arrays, self, key)

    def __contains__(self, key: str) -> bool:
        return isinstance(self.value, Mapping) and key in self.value

    def entries(self) -> dict[str, Saved]:
        """An object of any keys."""
        if not isinstance(self.value, Mapping):
            self.fail("is not an object")
        return {str(key): Saved(value, self._arrays, self, str(key)) for key, value in self.value.items()}

    def items(self, length: int | None = None) -> list[Saved]:
        if not isinstance(self.value, list | tuple):
            self.fail("is not a list")
        if length is not None and len(self.value) != length:
            self.fail(f"has {len(self.value)} entries, not {length}")
        return [Saved(value, self._arrays, self, k) for k, value in enumerate(self.value)]

    @property
    def missing(self) -> bool:
        return self.value is None

    # --- plain values --------------------------------------------------------------------------

    def integer(self, low: int = 0, high: int = _LARGEST) -> int:
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            self.fail("is not a whole number")
        if not low <= self.value <= high:
            self.fail(f"is {self.value}, not between {low} and {high}")
        return self.value

    def number(self, low: float = -math.inf) -> float:
        """A finite number."""
        value = self.any_number()
        if not math.isfinite(value) or value < low:
            self.fail(f"is {value}, not a finite number" + ("" if low == -math.inf else f" from {low} on"))
        return value

    def any_number(self) -> float:
        """A number, or the name of one that is not finite (`pack_number`)."""
        value = _NOT_FINITE.get(self.value, self.value) if isinstance(self.value, str) else self.value
        if not isinstance(value, int | float) or isinstance(value, bool):
            self.fail("is not a number")
        try:
            return float(value)
        except OverflowError:
            self.fail("is too large")

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            self.fail("is neither true nor false")
        return self.value

    def text(self) -> str:
        if not isinstance(self.value, str):
            self.fail("is not a text")
        return self.value

    def pairs(self, n: int) -> list[tuple[int, Saved]]:
        """A list of [client, value], each client at most once."""
        found: dict[int, Saved] = {}
        for item in self.items():
            client, value = item.items(2)
            i = client.integer(0, n - 1)
            if i in found:
                client.fail(f"is client {i} once more")
            found[i] = value
        return list(found.items())

    def clients(self, n: int) -> list[int]:
        """A list of clients, each at most once."""
        found = [item.integer(0, n - 1) for item in self.items()]
        if len(set(found)) < len(found):
            self.fail("names a client twice")
        return found

    def edge(self, n: int) -> tuple[int, int]:
        """Two different clients."""
        i, j = (end.integer(0, n - 1) for end in self.items(2))
        if i == j:
            self.fail("is not an edge")
        return i, j

    # --- arrays --------------------------------------------------------------------------------

    def array(self, like: Vector | None = None) -> Vector:
        """Any array of the run's precision, or of another array's: an update rule may count in doubles."""
        name = self.text()
        if name not in self._arrays.arrays:
            self.fail(f"is {name!r}, which is none of the checkpoint's arrays")
        x = self._arrays.arrays[name]
        wanted = (self._arrays.like if like is None else like).dtype
        if x.dtype != wanted:
            self.fail(f"is an array of {x.dtype}, not of {wanted}")
        return x

    def array_like(self, like: Vector) -> Vector:
        x = self.array(like)
        if x.shape != like.shape:
            self.fail(f"is an array of shape {x.shape}, not {like.shape}")
        return x

    def vector(self) -> Vector:
        """An array as long as a model."""
        return self.array_like(self._arrays.like)

    def message(self) -> Vector:
        """What clients publish or exchange: models, or whatever the algorithm sends; finite numbers."""
        return self.finite(self._arrays.message)

    def finite(self, like: Vector | None = None) -> Vector:
        """A model, or an array like another one, of finite numbers."""
        x = self.vector() if like is None else self.array_like(like)
        if not self._arrays.finite(self.text()):
            self.fail("has numbers that are not finite")
        return x


def saved_tree(tree: object, arrays: Mapping[str, Vector], like: Vector, message: Vector) -> Saved:
    return Saved(tree, Arrays(arrays, like, message))


Tree = dict[str, Any]
