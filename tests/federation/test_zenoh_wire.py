"""Sends that are over when the other end has taken them, whatever gets lost, is forged or comes twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swiftfl.transports.codec import Bytes
from swiftfl.transports.messages.message import Message
from swiftfl.transports.messages.wire import MODEL, TOLD
from swiftfl.transports.wire import CHUNK, Refusal, RefusedError, WireTerms
from swiftfl.transports.zenoh.frames import DATA, TAKEN, envelope, opened
from swiftfl.transports.zenoh.outgoing import Half, OutgoingTerms
from swiftfl.transports.zenoh.wire import WireNeighbour, ZenohWire

NUMBERS = 2 * CHUNK // 8 + 100  # doubles: three chunks
TERMS = WireTerms("ab" * 16, "cd" * 32, NUMBERS, "float64", "identity", 64 + 8 * NUMBERS)


class Pair:
    """Two wires whose links are each other; `lose` decides which frames never arrive."""

    def __init__(self, lose: Callable[[bytes], bool] = lambda data: False) -> None:
        self.lose, self.sent = lose, 0
        self.wires = [
            ZenohWire(End(self, 1 - i), i, {1 - i: WireNeighbour(f"end{1 - i}", 11 - i)}, 2, TERMS, 10 + i)
            for i in (0, 1)
        ]

    def refused(self, reason: Refusal | None = None) -> int:
        """How much the second end refused of what came from the first."""
        return self.wires[1].refusals.of("end0", reason)

    def close(self) -> None:
        for wire in self.wires:
            wire.close()


class End:
    def __init__(self, pair: Pair, to: int) -> None:
        self.pair, self.to = pair, to

    def put(self, to: str, data: bytes, urgent: bool = False) -> None:
        self.pair.sent += 1
        if not self.pair.lose(data):
            self.pair.wires[self.to].arrived(1 - self.to, data)

    def close(self) -> None:
        pass


def wait(true: Callable[[], object]) -> None:
    end = time.monotonic() + 120
    while not true():
        assert time.monotonic() < end
        time.sleep(0.002)


def model(version: int = 1) -> Bytes:
    message = Message(NUMBERS, np.float64)
    message.fill(np.random.default_rng(version).standard_normal(NUMBERS), version=version)
    return message.filled


def parts(serial: int, version: int = 1, sender: int = 10, terms: WireTerms = TERMS) -> Iterator[bytes]:
    """A message as the first end would send it."""
    return OutgoingTerms(terms, sender, 0).parts(Half(model(version), MODEL, serial))


def buffer() -> Bytes:
    return np.zeros(64 + 8 * NUMBERS, np.uint8)


def test_a_send_is_over_when_the_other_has_taken_it() -> None:
    pair, data, here = Pair(), model(), buffer()
    send = pair.wires[0].send(data, 1, MODEL)
    time.sleep(0.05)
    assert pair.wires[0].completed([send]) == []  # nobody wants it yet
    receive = pair.wires[1].receive(here, 0, MODEL)
    wait(lambda: pair.wires[0].completed([send]))
    assert pair.wires[1].completed([receive]) == [(0, data.size)]
    assert (here == data).all()
    pair.close()


@pytest.mark.parametrize("which", [0, 1, 2, 3], ids=["the header", "a chunk", "another", "the last"])
def test_what_is_lost_is_sent_again(which: int) -> None:
    seen: list[int] = []

    def lose(data: bytes) -> bool:
        if opened(data)[0] != DATA:
            return False
        seen.append(1)
        return len(seen) == which + 1

    pair, data, here = Pair(lose), model(), buffer()
    receive = pair.wires[1].receive(here, 0, MODEL)
    send = pair.wires[0].send(data, 1, MODEL)
    wait(lambda: pair.wires[0].completed([send]))
    assert pair.wires[1].completed([receive]) == [(0, data.size)]
    assert (here == data).all()
    pair.close()


def test_a_lost_answer_is_asked_for() -> None:
    lost: list[bytes] = []

    def lose(data: bytes) -> bool:
        if opened(data)[0] == TAKEN and not lost:
            lost.append(data)
            return True
        return False

    pair = Pair(lose)
    receive = pair.wires[1].receive(buffer(), 0, MODEL)
    send = pair.wires[0].send(model(), 1, MODEL)
    wait(lambda: pair.wires[0].completed([send]))
    assert pair.wires[1].completed([receive])
    assert lost
    assert pair.refused() == 0
    pair.close()


def test_what_came_before_its_sender_was_seen_comes_again() -> None:
    """It waits for a receive, is given up because its sender appears only now, and is not lost by that."""
    pair, data, here = Pair(), model(), buffer()
    send = pair.wires[0].send(data, 1, MODEL)
    wait(lambda: pair.wires[1]._edges[0].held[MODEL])
    pair.wires[1].forget(0)
    pair.wires[1].forget(0)  # as when it is told twice
    receive = pair.wires[1].receive(here, 0, MODEL)
    wait(lambda: pair.wires[0].completed([send]))
    assert pair.wires[1].completed([receive]) == [(0, data.size)]
    assert (here == data).all()
    assert pair.refused() == 0
    pair.close()


def test_bad_messages_are_refused_and_counted() -> None:
    pair = Pair()
    wire = pair.wires[1]
    first = wire.receive(buffer(), 0, MODEL)
    for frame in parts(50, version=5):
        wire.arrived(0, frame)
    assert wire.completed([first])
    second = wire.receive(buffer(), 0, MODEL)
    bad = {
        Refusal.REPLAYED: list(parts(50, version=5)),
        Refusal.STALE: list(parts(51, version=4))[:1],
        Refusal.FORGED: list(parts(52, sender=12))[:1],
        Refusal.FEDERATION: list(parts(53, terms=WireTerms("00" * 16, *list(vars(TERMS).values())[1:])))[:1],
        Refusal.UNREADABLE: [b"noise", b"SWFE" + bytes(40)],
    }
    for reason, frames in bad.items():
        for frame in frames:
            wire.arrived(0, frame)
        assert pair.refused(reason) == len(frames), reason
    assert wire.completed([second]) == []
    for frame in parts(60, version=6):
        wire.arrived(0, frame)
    assert wire.completed([second])  # what is right goes on
    pair.close()


def test_a_sender_that_does_not_wait_cannot_fill_the_memory() -> None:
    pair = Pair()
    for serial in range(1, 20):
        for frame in parts(serial):
            pair.wires[1].arrived(0, frame)
    assert pair.refused(Refusal.OVERSIZED) == 15  # four are kept
    pair.wires[1].arrived(0, envelope(TAKEN, TOLD, 12345))  # of a message that was never sent
    pair.close()


def test_what_was_under_way_to_who_is_gone_is_over() -> None:
    pair = Pair(lambda data: True)
    data = model()
    send = pair.wires[0].send(data, 1, MODEL)
    wait(lambda: pair.sent)
    assert pair.wires[0].completed([send]) == []
    pair.wires[0].forget(1)
    assert pair.wires[0].completed([send]) == [(0, data.size)]
    pair.close()


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_noise_is_refused(data: bytes) -> None:
    with pytest.raises(RefusedError):
        opened(data)


GOOD = list(parts(50))


@st.composite
def hostile(draw: st.DrawFn) -> list[bytes]:
    """Frames of a true message, in any order: as they are, cut, damaged, in another envelope, or noise."""
    found = []
    for _ in range(draw(st.integers(1, 6))):
        frame = draw(st.sampled_from(GOOD))
        kind = draw(st.sampled_from(["as it is", "cut", "flip", "envelope", "noise"]))
        if kind == "cut":
            frame = frame[: draw(st.integers(0, len(frame)))]
        elif kind == "flip":
            at = draw(st.integers(0, min(len(frame), 160) - 1))
            frame = frame[:at] + bytes([frame[at] ^ draw(st.integers(1, 255))]) + frame[at + 1 :]
        elif kind == "envelope":
            said = envelope(
                draw(st.integers(0, 5)), draw(st.integers(0, 70)), draw(st.integers(0, 2**64 - 1))
            )
            frame = said + frame[len(said) :]
        elif kind == "noise":
            frame = draw(st.sampled_from([b"", b"SWFE", b"SWFE\x01\x01"])) + draw(st.binary(max_size=300))
        found.append(frame)
    return found


def survives(found: list[bytes]) -> None:
    """Nothing is raised, nothing but a true message is delivered, and what comes next is let in."""
    pair = Pair()
    try:
        wire, here = pair.wires[1], buffer()
        receive = wire.receive(here, 0, MODEL)
        for frame in found:
            wire.arrived(0, frame)
        if wire.completed([receive]):
            assert here.tobytes() == model().tobytes()
            receive = wire.receive(here, 0, MODEL)
        for frame in parts(2**64 - 1, version=2):
            wire.arrived(0, frame)
        assert wire.completed([receive]) == [(0, here.size)]
        assert here.tobytes() == model(2).tobytes()
    finally:
        pair.close()


@settings(max_examples=40, deadline=None)
@given(hostile())
def test_hostile_frames_harm_nobody(found: list[bytes]) -> None:
    survives(found)


@pytest.mark.slow
@settings(max_examples=2000, deadline=None)
@given(hostile())
def test_many_hostile_frames_harm_nobody(found: list[bytes]) -> None:
    survives(found)
