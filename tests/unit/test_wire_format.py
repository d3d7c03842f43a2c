"""The wire between organisations: what is let in, and that everything else is refused and harms nobody."""

from __future__ import annotations

import contextlib
import struct
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swiftfl.transports.codec import IDENTITY, Bytes, decode
from swiftfl.transports.compression import TopK
from swiftfl.transports.wire import (
    CHUNK,
    CHUNK_HEADER_BYTES,
    HEADER_BYTES,
    Incoming,
    Refusal,
    Refusals,
    RefusedError,
    WireMessage,
    WireTerms,
    frames,
)

SIZE = 300
TERMS = WireTerms(32 * "a", 64 * "b", SIZE, "float32", "identity", 4 * SIZE)
LARGE = replace(TERMS, size=200_000, most_bytes=800_000)


def model(size: int = SIZE, seed: int = 0) -> Bytes:
    return np.random.default_rng(seed).normal(size=size).astype(np.float32).view(np.uint8)


def message(
    version: int = 1, serial: int = 1, terms: WireTerms = TERMS, sender: int = 4, epoch: int = 0
) -> list[bytes]:
    return list(frames(terms, sender, epoch, version, serial, model(terms.size)))


def taken(incoming: Incoming, parts: list[bytes]) -> WireMessage | None:
    found = None
    for part in parts:
        found = incoming.take(part)
    return found


def resealed(frame: bytes, place: int, new: bytes) -> bytes:
    """A header with other bytes at a place, and the right checksum: what a liar would send."""
    changed = frame[:place] + new + frame[place + len(new) : -4]
    return changed + struct.pack("<I", zlib.crc32(changed))


def test_a_message_arrives_as_it_was_sent() -> None:
    parts = message(terms=LARGE)
    assert len(parts) == 1 + -(-800_000 // CHUNK)
    assert len(parts[0]) == HEADER_BYTES
    found = taken(Incoming(LARGE, 4), parts)
    assert found is not None
    assert (found.header.sender, found.header.epoch, found.header.version, found.header.serial) == (
        4,
        0,
        1,
        1,
    )
    assert found.data.tobytes() == model(LARGE.size).tobytes()
    x = decode(IDENTITY, found.data, LARGE.size, "float32")
    assert x.tobytes() == model(LARGE.size).tobytes()
    assert not x.flags.writeable


DTYPE_AT, CODEC_AT, FEDERATION_AT, LAYOUT_AT, SENDER_AT, LENGTH_AT = 5, 8, 16, 32, 64, 96
LIES: dict[Refusal, Callable[[bytes], bytes]] = {
    Refusal.UNREADABLE: lambda head: b"GET / HTTP/1.1\r\n\r\n",
    Refusal.FORMAT: lambda head: resealed(head, 4, b"\x02"),
    Refusal.CORRUPT: lambda head: head[:70] + bytes([head[70] ^ 1]) + head[71:],
    Refusal.FEDERATION: lambda head: resealed(head, FEDERATION_AT, 16 * b"\xcc"),
    Refusal.FORGED: lambda head: resealed(head, SENDER_AT, struct.pack("<I", 5)),
    Refusal.LAYOUT: lambda head: resealed(head, LAYOUT_AT, 32 * b"\xcc"),
    Refusal.DTYPE: lambda head: resealed(head, DTYPE_AT, b"\x02"),
    Refusal.CODEC: lambda head: resealed(head, CODEC_AT, 8 * b"\xcc"),
    Refusal.OVERSIZED: lambda head: resealed(head, LENGTH_AT, struct.pack("<Q", 1 << 60)),
}


@pytest.mark.parametrize("reason", LIES)
def test_a_lie_in_the_header_is_refused_by_its_name_before_any_memory_is_taken(reason: Refusal) -> None:
    incoming = Incoming(TERMS, 4)
    with pytest.raises(RefusedError) as caught:
        incoming.take(LIES[reason](message()[0]))
    assert caught.value.reason is reason
    assert incoming.held == 0
    assert taken(incoming, message(serial=2)) is not None, "the next message is none the worse"


def test_replayed_and_stale_messages_are_refused() -> None:
    incoming = Incoming(TERMS, 4)
    assert taken(incoming, message(version=5, serial=7)) is not None
    for parts, reason in (
        (message(version=5, serial=7), Refusal.REPLAYED),
        (message(version=9, serial=6), Refusal.REPLAYED),
        (message(version=4, serial=8), Refusal.STALE),
    ):
        with pytest.raises(RefusedError) as caught:
            incoming.take(parts[0])
        assert caught.value.reason is reason
    assert taken(incoming, message(version=5, serial=9)) is not None
    assert taken(incoming, message(version=2, serial=10, epoch=1)) is not None, "it came back, in a new epoch"
    with pytest.raises(RefusedError) as caught:
        incoming.take(message(version=99, serial=11)[0])
    assert caught.value.reason is Refusal.STALE


def test_chunks_must_come_in_order_each_once_and_whole() -> None:
    head, first, second, *rest = message(terms=LARGE)
    damaged = first[:-1] + bytes([first[-1] ^ 1])
    short = first[: CHUNK_HEADER_BYTES + 10]
    cases = {
        (first,): Refusal.INCOMPLETE,
        (head, second): Refusal.INCOMPLETE,
        (head, first, first): Refusal.INCOMPLETE,
        (head, short): Refusal.INCOMPLETE,
        (head, damaged): Refusal.CORRUPT,
        (head, first[:CHUNK_HEADER_BYTES]): Refusal.UNREADABLE,
        (head, first + b"x"): Refusal.UNREADABLE,
    }
    for parts, reason in cases.items():
        incoming = Incoming(LARGE, 4)
        with pytest.raises(RefusedError) as caught:
            taken(incoming, list(parts))
        assert caught.value.reason is reason, parts
        assert incoming.held == 0
        with pytest.raises(RefusedError):
            taken(incoming, [second, *rest])
        assert taken(incoming, message(serial=2, terms=LARGE)) is not None


def test_a_new_message_takes_the_place_of_one_that_was_not_finished() -> None:
    incoming = Incoming(LARGE, 4)
    taken(incoming, message(terms=LARGE)[:2])
    assert incoming.held == 800_000
    found = taken(incoming, message(version=2, serial=2, terms=LARGE))
    assert found is not None
    assert found.header.version == 2
    assert incoming.held == 0


def test_bytes_of_a_whole_message_that_are_not_those_announced() -> None:
    head, chunk = message()
    body = bytearray(chunk[CHUNK_HEADER_BYTES:])
    body[0] ^= 1
    magic, length, serial, offset, _ = struct.unpack("<4sIQQI", chunk[:CHUNK_HEADER_BYTES])
    forged = struct.pack("<4sIQQI", magic, length, serial, offset, zlib.crc32(body)) + bytes(body)
    with pytest.raises(RefusedError) as caught:
        taken(Incoming(TERMS, 4), [head, forged])
    assert caught.value.reason is Refusal.CORRUPT


def test_refusals_are_counted_by_sender_and_reason_and_logged_seldom(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counted = Refusals()
    for _ in range(1000):
        counted.count("b", RefusedError(Refusal.STALE))
    counted.count("c", RefusedError(Refusal.FORGED, "5, not 4"))
    assert counted.by_sender() == {"b": {"STALE": 1000}, "c": {"FORGED": 1}}
    assert counted.of("b") == counted.of("b", Refusal.STALE) == 1000
    assert counted.of("c", Refusal.STALE) == 0
    assert len(caplog.records) == 11
    assert "refused a message of c (1 of this kind): it says that it is of another sender" in caplog.text


def test_nothing_is_unpickled() -> None:
    import swiftfl.transports.wire as wire

    assert not {"pickle", "marshal", "torch"} & set(vars(wire))
    assert sys.byteorder == "little" or not TERMS.dtype.startswith(">")


# --- fuzzing --------------------------------------------------------------------------------------

GOOD = message(terms=LARGE)
LAST = message(2**63, 2**64 - 1, LARGE, epoch=2**64 - 1)


@st.composite
def hostile(draw: st.DrawFn) -> list[bytes]:
    """Frames of a real message: cut, damaged, doubled, out of order, resealed, or anything at all."""
    parts = []
    for _ in range(draw(st.integers(1, 6))):
        frame = draw(st.sampled_from(GOOD))
        kind = draw(st.sampled_from(["as it is", "cut", "flip", "resealed", "noise", "longer"]))
        if kind == "cut":
            frame = frame[: draw(st.integers(0, len(frame)))]
        elif kind == "flip":
            at = draw(st.integers(0, min(len(frame), 200) - 1))
            frame = frame[:at] + bytes([frame[at] ^ draw(st.integers(1, 255))]) + frame[at + 1 :]
        elif kind == "resealed":
            at = draw(st.integers(4, HEADER_BYTES - 5))
            frame = resealed(GOOD[0], at, draw(st.binary(min_size=1, max_size=min(8, HEADER_BYTES - 4 - at))))
        elif kind == "noise":
            frame = draw(st.sampled_from([b"", b"SWFM", b"SWFC"])) + draw(st.binary(max_size=400))
        elif kind == "longer":
            frame = frame + draw(st.binary(min_size=1, max_size=50))
        parts.append(frame)
    return parts


def survives(parts: list[bytes]) -> None:
    """Frames are taken or refused with a reason; memory stays within one message; the next one arrives."""
    incoming = Incoming(LARGE, 4)
    for part in parts:
        try:
            found = incoming.take(part)
        except RefusedError:
            assert incoming.held == 0
        else:
            assert incoming.held <= LARGE.most_bytes
            assert found is None or found.data.size <= LARGE.most_bytes
    if incoming._serial < 2**64 - 1:
        assert taken(incoming, LAST) is not None


def read_parts(data: bytes) -> None:
    """A code of top-k, whatever it is, changes an image or is refused, and nothing else."""
    image = np.zeros(50, np.float32)
    with contextlib.suppress(ValueError):
        TopK().decode_onto(np.frombuffer(data, np.uint8), image, 3)
    assert image.shape == (50,)


CODES = st.one_of(
    st.binary(max_size=400),
    st.builds(
        lambda kind, count, base, rest: struct.pack("<IIQQ", kind, count, base, 9) + rest,
        st.integers(0, 2),
        st.integers(0, 60),
        st.integers(0, 5),
        st.binary(max_size=480),
    ),
)
QUICK = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
LONG = settings(max_examples=3000, deadline=None, suppress_health_check=list(HealthCheck))


@QUICK
@given(hostile())
def test_hostile_frames_harm_nobody(parts: list[bytes]) -> None:
    survives(parts)


@QUICK
@given(CODES)
def test_hostile_codes_harm_nobody(data: bytes) -> None:
    read_parts(data)


@pytest.mark.slow
@LONG
@given(hostile())
def test_many_hostile_frames_harm_nobody(parts: list[bytes]) -> None:
    survives(parts)


@pytest.mark.slow
@LONG
@given(CODES)
def test_many_hostile_codes_harm_nobody(data: bytes) -> None:
    read_parts(data)
