"""Doorbells: they wake, never wait, and are missed where nobody is."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from swiftfl.transports.messages.doorbell import CAME, LOOK, Doorbell
from swiftfl.transports.messages.fragments import Fragments

LONG = 5.0


@pytest.fixture
def pair() -> Iterator[tuple[Doorbell, Doorbell]]:
    bells = Doorbell(0), Doorbell(1)
    for each in bells:
        each.meet([bell.name for bell in bells])
    for each in bells:
        each.heard()  # the ring of the meeting
    yield bells
    for each in bells:
        each.close()


def test_a_ring_is_heard_once(pair: tuple[Doorbell, Doorbell]) -> None:
    ours, theirs = pair
    assert ours.complete
    ours.ring(1, CAME)
    ours.ring(1, LOOK)
    assert theirs.heard() == [(0, CAME), (0, LOOK)]
    assert theirs.heard() == []


def test_a_ring_wakes_the_sleeper(pair: tuple[Doorbell, Doorbell]) -> None:
    ours, theirs = pair
    for sleep in (theirs.sleep, theirs.doze):
        threading.Timer(0.05, lambda: ours.ring(1)).start()
        began = time.perf_counter()
        sleep(LONG)
        assert time.perf_counter() - began < LONG / 2
        assert theirs.heard()


def test_one_wakes_oneself(pair: tuple[Doorbell, Doorbell]) -> None:
    ours, _ = pair
    ours.wake()
    began = time.perf_counter()
    ours.doze(LONG)
    assert time.perf_counter() - began < LONG / 2


def test_the_thread_sleeps_on_while_its_ear_is_covered(pair: tuple[Doorbell, Doorbell]) -> None:
    ours, theirs = pair
    theirs.cover()
    ours.ring(1)
    began = time.perf_counter()
    theirs.doze(0.1)
    assert time.perf_counter() - began > 0.09
    theirs.uncover()
    theirs.doze(LONG)
    assert time.perf_counter() - began < LONG / 2


def test_nobody_waits_for_one_who_does_not_listen(pair: tuple[Doorbell, Doorbell]) -> None:
    ours, theirs = pair
    for _ in range(2000):
        ours.ring(1)
    assert ours.reaches(1)
    assert theirs.heard()


def test_who_is_not_there_cannot_be_rung(pair: tuple[Doorbell, Doorbell]) -> None:
    ours, theirs = pair
    theirs.close()
    ours.ring(1)
    assert not ours.reaches(1)
    assert not ours.complete


def test_without_a_bell_there_is_only_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Doorbell) -> None:
        raise OSError

    monkeypatch.setattr(Doorbell, "_bind", fail)
    deaf = Doorbell(0)
    deaf.meet([deaf.name, b""])
    assert not deaf.complete
    deaf.ring(1)
    deaf.wake()
    deaf.cover()
    deaf.uncover()
    deaf.sleep(0.001)
    deaf.doze(0.003)
    assert deaf.heard() == []
    deaf.close()


def test_a_message_that_is_not_there_after_its_ring_travels_in_pieces() -> None:
    pieces = Fragments()
    pieces.announced(3)
    assert pieces.missing(3)
    assert pieces.under_way
    assert pieces.usual(3)
    pieces.arrived(3)
    pieces.over(3)
    assert not pieces.under_way
    pieces.announced(3)
    pieces.arrived(3)
    assert not pieces.missing(3)
    assert not pieces.usual(3)


def test_a_message_may_be_there_before_its_ring() -> None:
    pieces = Fragments()
    pieces.arrived(3)
    pieces.announced(3)
    assert not pieces.missing(3)
    assert not pieces.under_way
