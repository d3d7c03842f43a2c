"""One message: a header of eight 64-bit words and a vector, side by side, so that they travel together."""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt

from swiftfl.transports.messages.wire import Bytes
from swiftfl.vector import Vector

_MAGIC = 0x53574946542D3031  # "SWIFT-01"
_HEADER = 64
_MAGIC_AT, _SIZE, _ITEM, _ORDER, _VERSION, _ROUND, _WEIGHT = range(7)
_LITTLE = int(sys.byteorder == "little")


class Message:
    """A buffer that is made once and used again and again; `vector` is a view of its content."""

    def __init__(self, size: int, dtype: npt.DTypeLike) -> None:
        kind = np.dtype(dtype)
        self.data: Bytes = np.zeros(_HEADER + size * kind.itemsize, dtype=np.uint8)
        self.words = self.data[:_HEADER].view(np.int64)
        self.numbers = self.data[:_HEADER].view(np.float64)
        self.vector: Vector = self.data[_HEADER:].view(kind)
        self.view: Vector = self.vector[:]
        self.view.flags.writeable = False
        self._expected = np.array([_MAGIC, size, kind.itemsize, _LITTLE], dtype=np.int64)
        self.words[:4] = self._expected

    def fill(self, x: Vector, version: int = 0, round: int = 0, weight: float = 1.0) -> None:
        """The one copy of a publish."""
        self.words[:4] = self._expected
        self.words[_VERSION] = version
        self.words[_ROUND] = round
        self.numbers[_WEIGHT] = weight
        self.vector[:] = x

    @property
    def version(self) -> int:
        return int(self.words[_VERSION])

    @property
    def round(self) -> int:
        return int(self.words[_ROUND])

    @property
    def weight(self) -> float:
        return float(self.numbers[_WEIGHT])

    def is_whole(self, count: int) -> bool:
        """Whether what arrived is a message of ours with a vector of this length and kind."""
        return count == self.data.size and bool((self.words[:4] == self._expected).all())
