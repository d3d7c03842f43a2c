"""Doorbells: they wake, never block, are missed where nobody is, and nobody else can ring them."""

from __future__ import annotations

import os
import resource
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from swiftfl.transports.messages import doorbell as doorbells
from swiftfl.transports.messages.doorbell import CAME, LOOK, Doorbell
from swiftfl.transports.messages.fragments import MessageFragments

LONG = 5.0


@pytest.fixture
def pair() -> Iterator[tuple[Doorbell, Doorbell]]:
    both = Doorbell(0), Doorbell(1)
    for each in both:
        each.connect([other.address for other in both])
    yield both
    for each in both:
        each.close()


def test_a_ring_is_heard_once(pair: tuple[Doorbell, Doorbell]) -> None:
    ours, theirs = pair
    assert ours.complete
    ours.ring(1, CAME)
    ours.ring(1, LOOK)
    assert theirs.rings() == [(0, CAME), (0, LOOK)]
    assert theirs.rings() == []


def test_a_ring_wakes_the_sleeper(pair: tuple[Doorbell, Doorbell]) -> None:
    ours, theirs = pair
    for sleep in (theirs.sleep, theirs.thread_sleep):
        threading.Timer(0.05, lambda: ours.ring(1)).start()
        assert sleep(LONG)  # false if it slept to the end
        assert theirs.rings() == [(0, CAME)]
        assert not sleep(0.003)


def test_a_client_wakes_itself(pair: tuple[Doorbell, Doorbell]) -> None:
    ours, _ = pair
    ours.wake()
    assert ours.thread_sleep(LONG)


def test_the_thread_sleeps_on_while_it_is_muted(pair: tuple[Doorbell, Doorbell]) -> None:
    ours, theirs = pair
    theirs.mute_thread()
    ours.ring(1)
    assert not theirs.thread_sleep(0.1)
    theirs.unmute_thread()
    assert theirs.thread_sleep(LONG)


def test_descriptors_may_have_any_number() -> None:
    """Such as those of a process with many files open: select takes none above 1023."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < 2000:
        pytest.skip("this user may not open 2000 files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2000, before[1]))
    taken = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while taken[-1] < 1100:
            taken.append(os.dup(taken[0]))
        bell = Doorbell(0)
        bell.connect([bell.address])
        assert not bell.sleep(0.001)
        bell.wake()
        assert bell.sleep(LONG)
        bell.close()
    finally:
        for each in taken:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_nobody_waits_for_a_client_that_does_not_listen(pair: tuple[Doorbell, Doorbell]) -> None:
    ours, theirs = pair
    for _ in range(2000):
        ours.ring(1)
    assert ours.reaches(1)
    assert theirs.rings()


def test_a_client_that_has_gone_cannot_be_rung(pair: tuple[Doorbell, Doorbell]) -> None:
    ours, theirs = pair
    theirs.close()
    ours.ring(1)
    assert not ours.reaches(1)
    assert not ours.complete


def test_without_a_doorbell_there_is_only_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Doorbell) -> None:
        raise OSError

    monkeypatch.setattr(Doorbell, "_bind", fail)
    without = Doorbell(0)
    without.connect([without.address, b""])
    assert not without.complete
    without.ring(1)
    without.wake()
    without.mute_thread()
    without.unmute_thread()
    without.sleep(0.001)
    without.thread_sleep(0.003)
    assert without.rings() == []
    without.close()


# --- attacks -------------------------------------------------------------------------------------


def attacker(address: bytes) -> socket.socket:
    found = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        found.connect(address)
    except OSError:
        found.close()
        raise
    return found


@pytest.mark.parametrize(
    "data", [b"", b"x", b"\0\0\0\0", b"\0\0\0\0\x09", b"\xff" * 5, b"\0" * 6, b"x" * 500]
)
def test_what_is_not_a_ring_is_ignored(pair: tuple[Doorbell, Doorbell], data: bytes) -> None:
    ours, theirs = pair
    with attacker(theirs.address) as intruder:
        intruder.send(data)
    ours.ring(1, CAME)
    assert theirs.rings() == [(0, CAME)]


def test_only_this_user_may_reach_the_address() -> None:
    own = Doorbell(0)
    folder = Path(own.address.decode()).parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    own.close()
    assert not folder.exists()


def test_a_hidden_doorbell_rings_for_those_who_were_connected_and_nobody_else(
    pair: tuple[Doorbell, Doorbell],
) -> None:
    ours, theirs = pair
    address = theirs.address
    for each in pair:
        each.hide()
    assert not Path(address.decode()).parent.exists()
    with pytest.raises(OSError):  # noqa: PT011 - whatever the kernel says
        attacker(address)
    ours.ring(1, CAME)
    theirs.wake()
    assert [rank for rank, _ in theirs.rings()] == [0, 1]


def test_the_address_of_another_user_is_refused(
    pair: tuple[Doorbell, Doorbell], monkeypatch: pytest.MonkeyPatch
) -> None:
    third = Doorbell(2)
    monkeypatch.setattr(doorbells.os, "geteuid", lambda: 4711)
    third.connect([pair[0].address, pair[1].address, third.address])
    assert not third.reaches(0)
    assert not third.complete
    third.close()


class Endless:
    """In the place of a socket: whoever reads it finds one more datagram, for ever."""

    def __init__(self) -> None:
        self.read = 0

    def recv(self, size: int) -> bytes:
        self.read += 1
        assert self.read < 10_000, "it does not come back while there is more to read"
        return b"x"


def test_a_flood_is_read_in_small_portions(
    pair: tuple[Doorbell, Doorbell], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, theirs = pair
    flood = Endless()
    with monkeypatch.context() as patched:
        patched.setattr(theirs, "_own", flood)
        assert theirs.rings() == []
        assert 0 < flood.read <= 100


FLOOD = """
import socket, sys
end = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
end.connect(sys.argv[1])
print("connected", flush=True)
while True:
    end.send(b"x")
"""


def test_rings_are_heard_while_another_process_floods(pair: tuple[Doorbell, Doorbell]) -> None:
    """One that had connected before the address was removed, and writes without end."""
    ours, theirs = pair
    flood = subprocess.Popen([sys.executable, "-c", FLOOD, theirs.address.decode()], stdout=subprocess.PIPE)
    try:
        assert flood.stdout is not None
        assert flood.stdout.readline() == b"connected\n"
        theirs.hide()
        assert theirs.sleep(LONG)
        heard: list[tuple[int, int]] = []
        end = time.monotonic() + 60
        while len(heard) < 20 and time.monotonic() < end:  # a ring that does not fit in is missed
            ours.ring(1)
            heard += theirs.rings()
        assert len(heard) >= 20
        assert set(heard) == {(0, CAME)}
        assert flood.poll() is None
    finally:
        flood.kill()
        flood.communicate()


def test_a_message_that_is_not_there_after_its_ring_arrives_in_fragments() -> None:
    fragments = MessageFragments()
    for number in range(1, 4):
        assert not fragments.usual(3)
        fragments.announced(3)
        assert fragments.missing(3)
        assert fragments.under_way
        assert fragments.usual(3) == fragments.expected == (number == 3)
        fragments.arrived(3)
        fragments.over(3)
        assert not fragments.under_way
    fragments.announced(3)
    fragments.arrived(3)
    assert not fragments.missing(3)
    assert fragments.usual(3), "that does not change during a run"
    assert not fragments.usual(4)


def test_a_message_may_be_there_before_its_ring() -> None:
    fragments = MessageFragments()
    fragments.arrived(3)
    fragments.announced(3)
    assert not fragments.missing(3)
    assert not fragments.under_way
