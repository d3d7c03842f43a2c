"""Clients that misbehave, for studies: what they publish or exchange is not their model.

A poison stands where models leave a client, before the codec: the client itself trains as always, observers
see its true model, and its neighbours get something else. So it acts in every engine and in replay, on
whatever passes a codec. One of your own is a function, registered with a decorator::

    @poison("zeros")
    def zeros() -> Poison:
        return lambda x, k, key: np.zeros_like(x)

It is given the model, the number k of this message (from 1 on) and a key of (seed, client) for whatever is
random, and makes a new vector.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from swiftfl.registry import Registry
from swiftfl.settings import NotBelowZero
from swiftfl.streams import stream
from swiftfl.transports.codec import Bytes, Codec
from swiftfl.vector import Memory, Vector

Key: TypeAlias = tuple[int, int]
Poison: TypeAlias = Callable[[Vector, int, Key], Vector]
Make = TypeVar("Make", bound=Callable[..., Poison])
Finite = Annotated[float, Field(allow_inf_nan=False)]
POISONS: Registry[Callable[..., Poison]] = Registry("kind of poison")
"""Kinds by name: functions whose keyword-only parameters are the options of a configuration."""
_COUNT = "poison_count"


def poison(name: str) -> Callable[[Make], Make]:
    """Register a function that makes a poison."""

    def register(make: Make) -> Make:
        POISONS.register(name, make)
        return make

    return register


@poison("scaled")
def scaled(*, factor: Finite = -10.0) -> Poison:
    """The model times a factor."""
    return lambda x, k, key: x * x.dtype.type(factor)


@poison("noise")
def noise(*, scale: NotBelowZero = 1.0) -> Poison:
    """Normal noise of this standard deviation in place of the model."""

    def make(x: Vector, k: int, key: Key) -> Vector:
        seed, client = key
        drawn = stream(seed, "poison noise", client, k).standard_normal(x.size)
        out: Vector = (scale * drawn).astype(x.dtype)
        return out

    return make


@poison("drift")
def drift(*, rate: NotBelowZero = 0.02) -> Poison:
    """The model plus a move in one random direction that is longer by `rate` with every message."""

    def make(x: Vector, k: int, key: Key) -> Vector:
        seed, client = key
        direction = stream(seed, "poison drift", client).standard_normal(x.size)
        out: Vector = x + (k * rate / np.linalg.norm(direction) * direction).astype(x.dtype)
        return out

    return make


class PoisonedCodec:
    """The codec of a client that may be one of those who misbehave; `belongs_to` tells it whose it is."""

    def __init__(self, codec: Codec, poisons: Mapping[int, Poison], seed: int) -> None:
        self.inner, self._poisons, self._seed = codec, poisons, seed
        self.name = codec.name
        self._client = -1
        self._count = 0

    def belongs_to(self, client: int) -> None:
        self._client = client

    def most_bytes(self, size: int, dtype: npt.DTypeLike) -> int:
        return self.inner.most_bytes(size, dtype)

    def encode(self, x: Vector) -> Bytes:
        poison = self._poisons.get(self._client)
        if poison is not None:
            self._count += 1
            with np.errstate(all="ignore"):
                x = poison(x, self._count, (self._seed, self._client))
        return self.inner.encode(x)

    def decode(self, data: Bytes, size: int, dtype: npt.DTypeLike) -> Vector:
        return self.inner.decode(data, size, dtype)

    def state(self) -> Memory:
        return {**self.inner.state(), _COUNT: np.array([float(self._count)])}

    def restore(self, memory: Memory) -> None:
        if _COUNT in memory:
            self._count = int(memory[_COUNT][0])
        self.inner.restore({name: array for name, array in memory.items() if name != _COUNT})
