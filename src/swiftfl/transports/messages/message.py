"""One message: a header of eight 64-bit words and an encoded vector, side by side in one buffer."""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt

from swiftfl.transports.codec import IDENTITY, Bytes, Codec, decode, encode, incremental
from swiftfl.vector import Vector

_MAGIC = 0x53574946542D3032  # "SWIFT-02"
_HEADER = 64
_MAGIC_AT, _SIZE, _ITEM, _ORDER, _BYTES, _VERSION, _ROUND, _WEIGHT = range(8)
_LITTLE = int(sys.byteorder == "little")


class Message:
    """A buffer that is made once and used again and again, for vectors of one size and type.

    Its last use decides how much of it counts: `filled` is what is to be sent. `data` is memory to use.
    """

    def __init__(
        self, size: int, dtype: npt.DTypeLike, codec: Codec = IDENTITY, data: Bytes | None = None
    ) -> None:
        self.size, self.dtype, self._codec = size, np.dtype(dtype), codec
        bytes = _HEADER + codec.most_bytes(size, self.dtype)
        self.data: Bytes = np.zeros(bytes, dtype=np.uint8) if data is None else data[:bytes]
        self.words = self.data[:_HEADER].view(np.int64)
        self.numbers = self.data[:_HEADER].view(np.float64)
        self._expected = np.array([_MAGIC, size, self.dtype.itemsize, _LITTLE], dtype=np.int64)

    def fill(self, x: Vector, version: int = 0, round: int = 0, weight: float = 1.0, since: int = -1) -> None:
        """Encode a vector into it: the one copy of a publish.

        Where codes may hold changes only, those since the code of this number (-1: everything).
        """
        if x.shape != (self.size,):
            raise ValueError(f"a vector of shape {x.shape} does not fit in a message of {self.size} numbers")
        if (changing := incremental(self._codec)) is not None:
            changing.since(since)
        code = encode(self._codec, x.astype(self.dtype, copy=False))
        self.words[:4] = self._expected
        self.words[_BYTES] = code.size
        self.words[_VERSION] = version
        self.words[_ROUND] = round
        self.numbers[_WEIGHT] = weight
        self.data[_HEADER : _HEADER + code.size] = code

    @property
    def filled(self) -> Bytes:
        """What there is to send."""
        return self.data[: _HEADER + int(self.words[_BYTES])]

    @property
    def code(self) -> Bytes:
        """The encoded vector in it."""
        return self.filled[_HEADER:]

    @property
    def vector(self) -> Vector:
        """The vector in it, read-only and in place where the codec allows; ValueError if there is none."""
        return decode(self._codec, self.code, self.size, self.dtype)

    @property
    def version(self) -> int:
        return int(self.words[_VERSION])

    @property
    def round(self) -> int:
        return int(self.words[_ROUND])

    @property
    def weight(self) -> float:
        """Of a gift to a reduction; of a published model, the time of publication (`time.time`)."""
        return float(self.numbers[_WEIGHT])

    def is_whole(self, count: int) -> bool:
        """Whether what arrived is one of our messages, of the length that it says, for such vectors."""
        if count < _HEADER or not bool((self.words[:4] == self._expected).all()):
            return False
        return count == _HEADER + int(self.words[_BYTES])


def version_in(data: Bytes) -> int:
    """The version in the bytes of a message."""
    return int(data[:_HEADER].view(np.int64)[_VERSION])
