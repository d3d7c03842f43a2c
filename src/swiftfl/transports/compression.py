"""Codecs that make models smaller: bf16, int8 with error feedback, top-k with error feedback.

What a codec leaves out of a model is not lost where there is error feedback: it is added to the next one
(`int8`), or stays the difference between the model and what neighbours have of it (`topk`).
"""

from __future__ import annotations

import math
import struct

import numpy as np
import numpy.typing as npt

from swiftfl.settings import Count, Share
from swiftfl.transports.codec import Bytes, codec
from swiftfl.vector import Memory, Vector

_LEVELS = 127


@codec("bf16")
class Bf16:
    """The upper half of single precision, rounded to the nearest (ties to even): 2 bytes a number.

    The error of a number is at most 2^-8 of it.
    """

    name = "bf16"

    def most_bytes(self, size: int, dtype: npt.DTypeLike) -> int:
        return 2 * size

    def encode(self, x: Vector) -> Bytes:
        with np.errstate(over="ignore"):  # a double that is too large arrives as infinite, and is refused
            bits = x.astype(np.float32).view(np.uint32)
        nearest = (bits + (np.uint32(0x7FFF) + ((bits >> 16) & 1))) >> 16
        not_a_number = np.isnan(x)
        if not_a_number.any():  # whose bits rounding could carry into an infinity
            nearest[not_a_number] = 0x7FC0
        code: Bytes = nearest.astype("<u2").view(np.uint8)
        return code

    def decode(self, data: Bytes, size: int, dtype: npt.DTypeLike) -> Vector:
        if data.size != 2 * size:
            raise ValueError(f"{data.size} bytes are no code of {size} numbers")
        bits = np.frombuffer(data, "<u2").astype(np.uint32) << 16
        return bits.view(np.float32).astype(dtype)

    def state(self) -> Memory:
        return {}

    def restore(self, memory: Memory) -> None:
        """It remembers nothing."""


@codec("int8")
class Int8:
    """One byte a number, and a scale for each block of them; what is left out is added to the next model.

    With `s = max |w| / 127` in a block, w is sent as the nearest multiple of s: the error is at most s/2.
    The sum of what has arrived is the sum of what was sent, but for the last error.
    """

    name = "int8"

    def __init__(self, *, block: Count = 256) -> None:
        self._block = block
        self._left: Vector | None = None

    def most_bytes(self, size: int, dtype: npt.DTypeLike) -> int:
        return size + 4 * -(-size // self._block)

    def encode(self, x: Vector) -> Bytes:
        wanted = x if self._left is None else x + self._left
        with np.errstate(all="ignore"):  # a model that is not finite arrives as such, and is refused
            starts = np.arange(0, x.size, self._block)
            scales = (np.maximum.reduceat(np.abs(wanted), starts) / _LEVELS).astype("<f4")
            each = self._spread(scales, x.size, x.dtype)
            steps = np.rint(np.divide(wanted, each, out=np.zeros_like(wanted), where=each > 0))
            levels = np.clip(np.nan_to_num(steps), -_LEVELS, _LEVELS).astype(np.int8)
            left = wanted - levels * each
        self._left = np.where(np.isfinite(left), left, 0).astype(x.dtype)
        return np.concatenate([scales.view(np.uint8), levels.view(np.uint8)])

    def decode(self, data: Bytes, size: int, dtype: npt.DTypeLike) -> Vector:
        if data.size != self.most_bytes(size, dtype):
            raise ValueError(f"{data.size} bytes are no code of {size} numbers in blocks of {self._block}")
        scales = np.frombuffer(data[: data.size - size], "<f4")
        with np.errstate(all="ignore"):
            found: Vector = data[data.size - size :].view(np.int8) * self._spread(scales, size, dtype)
        return found

    def _spread(self, scales: npt.NDArray[np.float32], size: int, dtype: npt.DTypeLike) -> Vector:
        return np.repeat(scales.astype(dtype), self._block)[:size]

    def state(self) -> Memory:
        return {} if self._left is None else {"left": self._left}

    def restore(self, memory: Memory) -> None:
        self._left = memory.get("left")


_HEAD = struct.Struct("<IIQQ")  # 0 whole or 1 parts, how many numbers, since which code, number of this code
_WHOLE, _PARTS = 0, 1


@codec("topk")
class TopK:
    """Of each model the `share` of numbers that differ most from what neighbours have of it.

    It keeps that image of the model: y <- y + top-k(x - y). What is not sent stays in the difference x - y,
    which is error feedback: the image is the first model and all that was sent, and no number is forgotten
    for ever. Numbers are sent as they are, not as differences. The first code is the whole model.
    """

    name = "topk"

    def __init__(self, *, share: Share = 0.01) -> None:
        self._share = share
        self._image: Vector | None = None
        self._changed: npt.NDArray[np.int64] | None = None  # by which code each number was sent last
        self._since: int | None = None
        self.serial = 0

    def most_bytes(self, size: int, dtype: npt.DTypeLike) -> int:
        return _HEAD.size + size * np.dtype(dtype).itemsize

    def since(self, serial: int) -> None:
        """The next code is to hold everything that changed after the code of this number (-1: everything)."""
        self._since = serial

    def encode(self, x: Vector) -> Bytes:
        since, self._since = self._since, None
        self.serial += 1
        sent = self._sent(x)
        assert self._image is not None
        if since is not None and self._changed is None:
            self._changed = np.full(x.size, self.serial)
        if self._changed is not None and sent is not None:
            self._changed[sent] = self.serial
        if since is not None and 0 <= since < self.serial - 1 and self._changed is not None:
            sent = np.flatnonzero(self._changed > since)
        parts = sent is not None and since != -1
        if parts and sent is not None and sent.size * (4 + x.itemsize) < x.nbytes:
            base = self.serial - 1 if since is None else since
            head = _HEAD.pack(_PARTS, sent.size, base, self.serial)
            return _joined(head, sent.astype("<u4"), self._image[sent])
        return _joined(_HEAD.pack(_WHOLE, x.size, 0, self.serial), self._image)

    def _sent(self, x: Vector) -> npt.NDArray[np.intp] | None:
        """Bring the image nearer to x; which numbers that concerns, or None for all."""
        if self._image is None or self._image.shape != x.shape:
            self._image = _frozen(x.copy())
            return None
        k = min(x.size, math.ceil(self._share * x.size))
        with np.errstate(all="ignore"):  # what is not a number differs most, and is sent first
            difference = np.abs(x - self._image)
        sent = np.sort(np.argpartition(difference, x.size - k)[x.size - k :])
        image = self._image.copy()  # others hold the one before: mailboxes, saves
        image[sent] = x[sent]
        self._image = _frozen(image)
        return sent

    def image(self) -> Vector:
        """What neighbours have that got every code; read-only."""
        assert self._image is not None
        return self._image

    def decode(self, data: Bytes, size: int, dtype: npt.DTypeLike) -> Vector:
        """Of a whole model; parts need what they are parts of (`decode_onto`)."""
        if data.size != self.most_bytes(size, dtype) or _HEAD.unpack_from(data.data)[:2] != (_WHOLE, size):
            raise ValueError(f"{data.size} bytes are no code of a whole model of {size} {np.dtype(dtype)}")
        return data[_HEAD.size :].view(dtype)

    def decode_onto(self, data: Bytes, image: Vector, after: int) -> int:
        """Bring an image that has the code of number `after` up to this code; its number."""
        if data.size < _HEAD.size:
            raise ValueError(f"{data.size} bytes are no code")
        kind, count, base, serial = _HEAD.unpack_from(data.data)
        if kind == _WHOLE:
            image[:] = self.decode(data, image.size, image.dtype)
            return int(serial)
        if kind != _PARTS or data.size != _HEAD.size + count * (4 + image.itemsize) or count > image.size:
            raise ValueError(f"{data.size} bytes are no code of parts of {image.size} {image.dtype}")
        if base > after:
            raise ValueError(f"these are changes since code {base}, and code {after} is here")
        places = np.frombuffer(data[_HEAD.size : _HEAD.size + 4 * count], "<u4")
        if count and (int(places.max()) >= image.size or bool((np.diff(places.astype(np.int64)) <= 0).any())):
            raise ValueError("these are no places in a model, in order and each once")
        image[places] = np.frombuffer(data[_HEAD.size + 4 * count :].tobytes(), image.dtype)
        return int(serial)

    def state(self) -> Memory:
        return {} if self._image is None else {"image": self._image}

    def restore(self, memory: Memory) -> None:
        found = memory.get("image")
        self._image = None if found is None else _frozen(found.copy())
        self._changed = None


def _frozen(x: Vector) -> Vector:
    x.flags.writeable = False
    return x


def _joined(head: bytes, *parts: npt.NDArray[np.generic]) -> Bytes:
    arrays = [np.ascontiguousarray(part).view(np.uint8) for part in parts]
    return np.concatenate([np.frombuffer(head, np.uint8), *arrays])
