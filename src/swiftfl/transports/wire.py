"""What travels between organisations: a fixed header, then the bytes of a model in chunks. Never pickle::

    header   magic SWFM, format, dtype, codec, federation, layout hash, sender, epoch, model version, serial,
             bytes that follow, checksum of these, checksum of the header: HEADER_BYTES in all
    chunk    magic SWFC, bytes, serial of its message, offset, checksum: CHUNK_HEADER_BYTES; then the bytes

All numbers are little-endian. A receiver (`Incoming`) knows before the first byte what a message of this
neighbour must look like. It checks the header first and takes memory only then: never more than one message
of the federation needs. A message that is refused is a `RefusedError` with a `Refusal`, the reason, which
`Refusals` counts per sender; the run goes on.

The serial number grows with every message of a sender, also over its restarts: what was sent before is known
as such. Within an epoch model versions do not decrease; a node that comes back with an older model begins a
new epoch. That a message comes from whom it says is the link's affair (mutual TLS, access control by
certificate); the sender in the header must be the one whom the link knows.
"""

from __future__ import annotations

import enum
import hashlib
import logging
import struct
import threading
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from swiftfl.transports.codec import Bytes

log = logging.getLogger(__name__)

FORMAT = 1
CHUNK = 256 << 10
"""Bytes that travel together: so few that an urgent message need not wait for a large one."""
_HEADER = struct.Struct("<4sBBH8s16s32sIIQQQQII")
_CHUNK_HEADER = struct.Struct("<4sIQQI")
HEADER_BYTES = _HEADER.size
CHUNK_HEADER_BYTES = _CHUNK_HEADER.size
_MAGIC, _CHUNK_MAGIC = b"SWFM", b"SWFC"
_DTYPES = {"float32": 1, "float64": 2}


class Refusal(enum.Enum):
    """Why a message is refused."""

    UNREADABLE = "it is none of our messages"
    FORMAT = "it is written by another version of the format"
    CORRUPT = "its checksum does not match"
    FEDERATION = "it is of another federation"
    FORGED = "it says that it is of another sender"
    LAYOUT = "its model has another layout"
    DTYPE = "its numbers have another type"
    CODEC = "it is written by another codec"
    OVERSIZED = "it is larger than any message of this federation"
    REPLAYED = "it was sent before"
    STALE = "a newer model of this sender is here"
    INCOMPLETE = "a part of it is missing"
    UNDECODABLE = "its codec cannot read it"
    NOT_FINITE = "its numbers are not finite"


class RefusedError(ValueError):
    """A message that is not let in, and why."""

    def __init__(self, reason: Refusal, said: str = "") -> None:
        super().__init__(f"{reason.value}{f' ({said})' if said else ''}")
        self.reason = reason


class Refusals:
    """How many messages were refused, by sender and reason; the first, second, fourth ... are logged.

    >>> counted = Refusals()
    >>> counted.count("b", RefusedError(Refusal.STALE))
    >>> counted.by_sender()
    {'b': {'STALE': 1}}
    """

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, Refusal]] = Counter()
        self._lock = threading.Lock()

    def count(self, sender: str, error: RefusedError) -> None:
        with self._lock:
            self._counts[sender, error.reason] += 1
            times = self._counts[sender, error.reason]
        if times & (times - 1) == 0:
            log.warning("refused a message of %s (%d of this kind): %s", sender, times, error)

    def by_sender(self) -> dict[str, dict[str, int]]:
        with self._lock:
            found: dict[str, dict[str, int]] = {}
            for (sender, reason), times in sorted(self._counts.items(), key=lambda item: item[0][0]):
                found.setdefault(sender, {})[reason.name] = times
        return found

    def of(self, sender: str, reason: Refusal | None = None) -> int:
        with self._lock:
            return sum(
                times for (who, why), times in self._counts.items() if who == sender and reason in (None, why)
            )


@dataclass(frozen=True)
class WireTerms:
    """What every message of a federation has in common."""

    federation: str
    """Its id, 32 hexadecimal digits."""
    layout: str
    """The hash of the model's layout, 64 hexadecimal digits."""
    size: int
    """How many numbers a model has."""
    dtype: str
    codec: str
    """As users write it, with its options."""
    most_bytes: int
    """The longest code of a model: `Codec.most_bytes`."""

    def fixed(self) -> tuple[int, bytes, bytes, bytes]:
        """The fields of a header that do not change: dtype, codec, federation, layout."""
        codec = hashlib.sha256(self.codec.encode()).digest()[:8]
        return _DTYPES[self.dtype], codec, bytes.fromhex(self.federation), bytes.fromhex(self.layout)


class Header(NamedTuple):
    """What is told of a message before its bytes."""

    sender: int
    epoch: int
    version: int
    serial: int
    length: int
    checksum: int


@dataclass(frozen=True)
class WireMessage:
    """A message that was let in; `data` is the code of a model."""

    header: Header
    data: Bytes


def frames(
    terms: WireTerms, sender: int, epoch: int, version: int, serial: int, data: Bytes
) -> Iterator[bytes]:
    """A message as it travels: its header, then chunk by chunk its bytes."""
    whole = np.ascontiguousarray(data).data
    dtype, codec, federation, layout = terms.fixed()
    head = _HEADER.pack(
        _MAGIC, FORMAT, dtype, 0, codec, federation, layout, sender, 0, epoch, version, serial,
        len(whole), zlib.crc32(whole), 0,
    )  # fmt: skip
    yield head[:-4] + struct.pack("<I", zlib.crc32(head[:-4]))
    for offset in range(0, len(whole), CHUNK):
        body = whole[offset : offset + CHUNK]
        yield _CHUNK_HEADER.pack(_CHUNK_MAGIC, len(body), serial, offset, zlib.crc32(body)) + body


def read_header(frame: bytes | memoryview, terms: WireTerms, sender: int) -> Header:
    """The header of a message of this sender; `RefusedError` says what is wrong with anything else."""
    if len(frame) != HEADER_BYTES or bytes(frame[:4]) != _MAGIC:
        raise RefusedError(Refusal.UNREADABLE, f"{len(frame)} bytes")
    (
        _, format, dtype, nothing, codec, federation, layout, said, none, epoch, version, serial,
        length, checksum, own,
    ) = _HEADER.unpack(frame)  # fmt: skip
    if format != FORMAT:
        raise RefusedError(Refusal.FORMAT, f"{format}, not {FORMAT}")
    if zlib.crc32(frame[:-4]) != own or nothing or none:
        raise RefusedError(Refusal.CORRUPT, "of its header")
    expected = terms.fixed()
    if federation != expected[2]:
        raise RefusedError(Refusal.FEDERATION)
    if said != sender:
        raise RefusedError(Refusal.FORGED, f"{said}, not {sender}")
    if layout != expected[3]:
        raise RefusedError(Refusal.LAYOUT)
    if dtype != expected[0]:
        raise RefusedError(Refusal.DTYPE)
    if codec != expected[1]:
        raise RefusedError(Refusal.CODEC)
    if length > terms.most_bytes:
        raise RefusedError(Refusal.OVERSIZED, f"{length} bytes, at most {terms.most_bytes}")
    return Header(said, epoch, version, serial, length, checksum)


class Incoming:
    """What one neighbour sends. One thread calls `take`."""

    def __init__(self, terms: WireTerms, sender: int) -> None:
        self._terms, self._sender = terms, sender
        self._serial = -1  # the newest that was begun
        self._newest = (-1, -1)  # epoch and version of the newest that was let in
        self._header: Header | None = None
        self._data = bytearray()
        self._arrived = 0

    def take(self, frame: bytes | memoryview) -> WireMessage | None:
        """The next frame; the message if this was its last. `RefusedError`: its message is refused."""
        if bytes(frame[:4]) == _CHUNK_MAGIC:
            return self._chunk(frame)
        self._forget()
        header = read_header(frame, self._terms, self._sender)
        if header.serial <= self._serial:
            raise RefusedError(Refusal.REPLAYED, f"serial {header.serial}")
        self._serial = header.serial
        if (header.epoch, header.version) < self._newest:
            raise RefusedError(Refusal.STALE, f"version {header.version} of epoch {header.epoch}")
        self._header, self._data = header, bytearray(header.length)
        return self._finished() if header.length == 0 else None

    @property
    def held(self) -> int:
        """Bytes of memory for a message of which a part is here."""
        return len(self._data)

    def _chunk(self, frame: bytes | memoryview) -> WireMessage | None:
        if not CHUNK_HEADER_BYTES < len(frame) <= CHUNK_HEADER_BYTES + CHUNK:
            raise self._refused(Refusal.UNREADABLE, f"a chunk of {len(frame)} bytes")
        _, length, serial, offset, checksum = _CHUNK_HEADER.unpack_from(frame)
        body = memoryview(frame)[CHUNK_HEADER_BYTES:]
        if self._header is None or serial != self._header.serial:
            reason = Refusal.REPLAYED if serial <= self._serial else Refusal.INCOMPLETE
            raise self._refused(reason, "a chunk without its header")
        if offset != self._arrived or length != len(body) or offset + length > self._header.length:
            raise self._refused(
                Refusal.INCOMPLETE, f"{length} bytes at {offset}, expected at {self._arrived}"
            )
        if zlib.crc32(body) != checksum:
            raise self._refused(Refusal.CORRUPT, f"of the chunk at {offset}")
        self._data[offset : offset + length] = body
        self._arrived += length
        return self._finished() if self._arrived == self._header.length else None

    def _finished(self) -> WireMessage:
        header, data = self._header, self._data
        assert header is not None
        if zlib.crc32(data) != header.checksum:
            raise self._refused(Refusal.CORRUPT, "of all its bytes")
        self._newest = (header.epoch, header.version)
        self._forget()
        return WireMessage(header, np.frombuffer(data, dtype=np.uint8))

    def _refused(self, reason: Refusal, said: str) -> RefusedError:
        self._forget()
        return RefusedError(reason, said)

    def _forget(self) -> None:
        self._header, self._data, self._arrived = None, bytearray(), 0
