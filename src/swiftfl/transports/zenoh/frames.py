"""What travels between two ends: messages of `transports/wire.py`, and what is said of them.

In front of everything stands an envelope: what it is, the channel, and the serial number of the message.
"""

from __future__ import annotations

import struct

from swiftfl.transports.wire import Refusal, RefusedError

DATA, TAKEN, AGAIN, PROBE = 1, 2, 3, 4
"""A part of a message; the answers that one was taken, or is to come again; the question what it became."""
_ENVELOPE = struct.Struct("<4sBBQ")
_MAGIC = b"SWFE"
ENVELOPE_BYTES = _ENVELOPE.size
_TAGS = 64


def envelope(kind: int, tag: int, serial: int) -> bytes:
    """What stands in front of a part of a message, or is all there is to say of it."""
    return _ENVELOPE.pack(_MAGIC, kind, tag, serial)


def opened(data: bytes) -> tuple[int, int, int, memoryview]:
    """Kind, channel, serial number, and what is in it; `RefusedError` if it is none of ours."""
    if len(data) < ENVELOPE_BYTES:
        raise RefusedError(Refusal.UNREADABLE, f"{len(data)} bytes")
    magic, kind, tag, serial = _ENVELOPE.unpack_from(data)
    if magic != _MAGIC or kind not in (DATA, TAKEN, AGAIN, PROBE) or tag >= _TAGS:
        raise RefusedError(Refusal.UNREADABLE, "no envelope")
    return kind, tag, serial, memoryview(data)[ENVELOPE_BYTES:]
