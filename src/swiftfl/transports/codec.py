"""Codecs: what stands between a model and the wire.

Every model that a client publishes or exchanges in a round is encoded once by its sender and decoded by
whoever uses it; averages over everybody (`AllReduce`) and model cells (`AD-PSGD`) travel as they are. The
default is `identity`, which copies nothing. A transport that passes messages sends the encoded bytes; where
models stay in one memory (shared memory, simulation) neighbours are given what would have arrived,
`transmitted(codec, x)`: that saves nothing there, but the run is the same.

A codec of your own is one class in one file, registered with a decorator::

    @codec("half")
    class Half:
        name = "half"
        def most_bytes(self, size, dtype): return 2 * size
        def encode(self, x): return x.astype(np.float16).view(np.uint8)
        def decode(self, data, size, dtype): return data.view(np.float16).astype(dtype)
        def state(self): return {}
        def restore(self, memory): pass

One object belongs to one client's sending end, so that it may remember what it left out so far (error
feedback); `state` and `restore` carry that over a save. Decoding depends on the bytes alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from swiftfl.errors import UserError
from swiftfl.registry import Registry, options_of
from swiftfl.settings import checked_options, name_and_options
from swiftfl.vector import Memory, Vector

Bytes: TypeAlias = npt.NDArray[np.uint8]


class Codec(Protocol):
    """One client's way of writing models as bytes."""

    @property
    def name(self) -> str: ...

    def most_bytes(self, size: int, dtype: npt.DTypeLike) -> int:
        """How long the code of a vector of this size and type can get: the size of buffers."""

    def encode(self, x: Vector) -> Bytes:
        """The code of x, or of x and what earlier calls left out; x itself is not changed."""

    def decode(self, data: Bytes, size: int, dtype: npt.DTypeLike) -> Vector:
        """The vector of a code; raises ValueError for what is no code of such a vector.

        `data` may be overwritten after the call; a view of it is made read-only by the caller.
        """

    def state(self) -> Memory:
        """What it remembers between two calls, as named arrays."""

    def restore(self, memory: Memory) -> None:
        """Go on from a state."""


@runtime_checkable
class Incremental(Protocol):
    """What a codec has besides whose codes may hold changes only: what they are changes of is at both ends.

    Its codes are numbered. Where everything stays in one memory, or every code arrives, a code holds what
    changed since the one before; a transport that leaves some out says `since` which one all have.
    """

    @property
    def serial(self) -> int:
        """The number of the last code."""

    def since(self, serial: int) -> None:
        """The next code is to hold everything that changed after this one (-1: everything)."""

    def image(self) -> Vector:
        """What a neighbour has that got every code; read-only."""

    def decode_onto(self, data: Bytes, image: Vector, after: int) -> int:
        """Change an image that has code `after`; the code's number. ValueError if that cannot be."""


MakeCodec: TypeAlias = Callable[[], Codec]
Make = TypeVar("Make", bound=Callable[..., Codec])
CODECS: Registry[Callable[..., Codec]] = Registry("codec")
"""Codecs by name: functions whose keyword-only parameters are the options of a configuration."""


def codec(name: str) -> Callable[[Make], Make]:
    """Register a class or function that makes a codec."""

    def register(make: Make) -> Make:
        CODECS.register(name, make)
        return make

    return register


def codec_named(text: str) -> tuple[str, dict[str, Any]]:
    """Name and options of a codec as users write it; the value of its only option may stand alone.

    >>> codec_named("identity")
    ('identity', {})
    """
    name, colon, rest = text.partition(":")
    known = options_of(CODECS[name])
    if colon and rest and "=" not in rest:
        if len(known) != 1:
            raise UserError(f"{text}: options are written {name}:option=value")
        rest = f"{next(iter(known))}={rest}"
    given = name_and_options(f"{name}:{rest}")[1]
    return name, checked_options(f"codec {name}", known, given, "codec ")


def make_codec(text: str) -> MakeCodec:
    """What makes the codec that is named so."""
    name, options = codec_named(text)
    return partial(CODECS[name], **options)


@codec("identity")
class Identity:
    """The bytes of the vector as they are; nothing is copied."""

    name = "identity"

    def most_bytes(self, size: int, dtype: npt.DTypeLike) -> int:
        return size * np.dtype(dtype).itemsize

    def encode(self, x: Vector) -> Bytes:
        return np.ascontiguousarray(x).view(np.uint8)

    def decode(self, data: Bytes, size: int, dtype: npt.DTypeLike) -> Vector:
        if data.size != self.most_bytes(size, dtype):
            raise ValueError(f"{data.size} bytes are no vector of {size} {np.dtype(dtype)}")
        return data.view(dtype)

    def state(self) -> Memory:
        return {}

    def restore(self, memory: Memory) -> None:
        """It remembers nothing."""


IDENTITY = Identity()


def is_exact(codec: Codec) -> bool:
    """Whether models arrive as they were sent, so that nothing need be encoded within one memory."""
    return isinstance(codec, Identity)


def tell_whose(codec: Codec, client: int) -> Codec:
    """Tell a codec, before it is used, whose end it is, if it wants to know: by its method `belongs_to`."""
    tell = getattr(codec, "belongs_to", None)
    if tell is not None:
        tell(client)
    return codec


class Measured:
    """A codec that remembers how long its last code was."""

    def __init__(self, codec: Codec) -> None:
        self.inner, self.name, self.last = codec, codec.name, 0

    def belongs_to(self, client: int) -> None:
        tell_whose(self.inner, client)

    def most_bytes(self, size: int, dtype: npt.DTypeLike) -> int:
        return self.inner.most_bytes(size, dtype)

    def encode(self, x: Vector) -> Bytes:
        data = self.inner.encode(x)
        self.last = data.size
        return data

    def decode(self, data: Bytes, size: int, dtype: npt.DTypeLike) -> Vector:
        return self.inner.decode(data, size, dtype)

    def state(self) -> Memory:
        return self.inner.state()

    def restore(self, memory: Memory) -> None:
        self.inner.restore(memory)


def measured(make: MakeCodec) -> Codec:
    """A codec whose codes can be measured (`code_bytes`); one that is exact stays as it is."""
    codec = make()
    return codec if is_exact(codec) else Measured(codec)


def code_bytes(codec: Codec, x: Vector) -> int:
    """The bytes of x, just encoded, on the wire."""
    return codec.last if isinstance(codec, Measured) else x.nbytes


def encode(codec: Codec, x: Vector) -> Bytes:
    """The code of x, checked against what the codec promises.

    A code is made in host memory, of bits that only NumPy shows: a model on a device comes down first.
    """
    data = codec.encode(np.asarray(x))
    if data.dtype != np.uint8 or data.ndim != 1:
        raise UserError(f"codec {codec.name} must give a flat array of uint8, not {data.ndim}-d {data.dtype}")
    most = codec.most_bytes(x.size, x.dtype)
    if data.size > most:
        raise UserError(f"codec {codec.name} gave {data.size} bytes, and had promised at most {most}")
    return data


def decode(codec: Codec, data: Bytes, size: int, dtype: npt.DTypeLike) -> Vector:
    """The vector of a code, of the right size and type, and read-only."""
    x = codec.decode(data, size, dtype)
    if x.shape != (size,) or x.dtype != dtype:
        raise UserError(f"codec {codec.name} made {x.dtype} of shape {x.shape}, not {size} {np.dtype(dtype)}")
    x.flags.writeable = False
    return x


def incremental(codec: Codec) -> Incremental | None:
    """The codec, if its codes may hold changes only."""
    found: object = codec
    while hasattr(found, "inner"):  # one around it, such as `Measured`
        found = found.inner
    return found if isinstance(found, Incremental) else None


def arrived(codec: Codec, data: Bytes, x: Vector) -> Vector:
    """What arrives of x, which its sender's codec has just encoded."""
    changing = incremental(codec)
    return decode(codec, data, x.size, x.dtype) if changing is None else changing.image()


def transmitted(codec: Codec, x: Vector) -> Vector:
    """What arrives of x: x itself, without a copy, where the codec changes nothing."""
    return x if is_exact(codec) else arrived(codec, encode(codec, x), x)
