"""Newest-value channels, moved by hand: who gets what, and when nothing is left to be done."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from in_process_wire import Hub
from live_worlds import until

from swiftfl.transports.messages import newest
from swiftfl.transports.messages.fragments import LEARNING
from swiftfl.transports.messages.newest import NewestReceiver, NewestSender
from swiftfl.transports.messages.progress import ProgressThread
from swiftfl.transports.messages.wire import MODEL

X0 = np.zeros(8)


class World:
    """Client 0 sends to 1 and 2; nothing moves by itself."""

    def __init__(self, lazily: bool = False) -> None:
        self.hub = Hub(3)
        self.ends = [ProgressThread(wire) for wire in self.hub.wires]
        self.sender = NewestSender(self.ends[0], MODEL, X0, [1, 2], lazily=lazily)
        self.boxes = {k: NewestReceiver(self.ends[k], MODEL, 0, X0) for k in (1, 2)}

    def turn(self, *clients: int) -> None:
        for _ in range(3):
            for k in clients:
                self.ends[k].turn()

    def put(self, value: float, version: int) -> None:
        self.sender.put(np.full(8, value), version)

    def got(self, k: int) -> float | None:
        return self.boxes[k].read(lambda x, version: float(x[0]))

    def rung(self, k: int) -> int:
        """How often client k was rung since the last call."""
        return len(self.ends[k].doorbell.rings())

    @property
    def sent(self) -> int:
        return len(self.hub.bytes_sent[MODEL])


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    for end in made.ends:
        end.close()


def test_everybody_gets_the_newest_once(world: World) -> None:
    world.put(1.0, 1)
    world.turn(0, 1, 2)
    assert (world.got(1), world.got(2), world.sent) == (1.0, 1.0, 2)
    world.turn(0, 1, 2)
    assert world.sent == 2
    world.put(2.0, 2)
    world.turn(0, 1, 2)
    assert (world.got(1), world.got(2), world.sent) == (2.0, 2.0, 4)


def test_who_was_busy_gets_the_newest_afterwards_and_nothing_between(world: World) -> None:
    """Client 2 takes nothing for a while: one model is under way to it, and the ones between are left out."""
    for value in (1.0, 2.0, 3.0):
        world.put(value, int(value))
        world.turn(0, 1)
    assert (world.got(1), world.got(2)) == (3.0, 0.0)
    world.turn(0, 2)
    assert world.got(2) == 3.0
    assert world.sent == 3 + 2


def test_who_was_gone_gets_the_newest_when_it_is_back(world: World) -> None:
    world.ends[0].gone.add(2)
    world.put(1.0, 1)
    world.turn(0, 1, 2)
    assert (world.got(1), world.got(2)) == (1.0, 0.0)
    world.ends[0].gone.discard(2)
    world.sender.again(2)
    world.turn(0, 1, 2)
    assert (world.got(2), world.sent) == (1.0, 2)


def test_who_is_no_longer_gone_gets_what_it_missed_without_being_named(world: World) -> None:
    """Notes and orders are put seldom: whoever comes back must not have to wait for the next one."""
    world.ends[0].gone.add(2)
    world.put(1.0, 1)
    world.turn(0, 1, 2)
    world.ends[0].gone.discard(2)
    world.turn(0, 1, 2)
    assert (world.got(2), world.sent) == (1.0, 2)


# --- who is rung ---------------------------------------------------------------------------------


@pytest.fixture
def lazy() -> Iterator[World]:
    """The two look by themselves before they use what came."""
    made = World(lazily=True)
    for version in range(1, LEARNING + 1):
        made.put(0.0, version)
        made.turn(1, 2, 0)
    yield made
    for end in made.ends:
        end.close()


def test_who_looks_by_itself_is_rung_for_the_first_messages_only(lazy: World) -> None:
    assert lazy.rung(1) == lazy.rung(2) == LEARNING
    lazy.put(1.0, 10)
    assert lazy.rung(1) == lazy.rung(2) == 0
    lazy.ends[1]._turned = 0.0
    lazy.ends[1].glance()
    assert (lazy.got(1), lazy.got(2)) == (1.0, 0.0)


def test_who_looks_more_seldom_than_it_is_sent_something_is_rung_again(lazy: World) -> None:
    """Client 2 has a receive posted, for the first; the second is under way to it when there is a third."""
    lazy.rung(1), lazy.rung(2)
    for version in (10, 11):
        lazy.put(1.0, version)
        lazy.turn(1)
    assert (lazy.rung(1), lazy.rung(2)) == (0, 0)
    for waiting in range(newest._LATE):
        assert (lazy.rung(1), lazy.rung(2)) == (0, 0)
        lazy.put(2.0, 12 + waiting)
        lazy.turn(1)
    assert (lazy.rung(1), lazy.rung(2)) == (0, 1)
    lazy.put(3.0, 19)
    assert lazy.rung(2) == 0  # nothing else is under way to it
    lazy.turn(1, 2)
    for version in range(20, 20 + newest._AFTER_LATE):
        lazy.put(float(version), version)
        lazy.turn(1, 2)
        assert (lazy.rung(1), lazy.rung(2)) == (0, 1)
    lazy.put(4.0, 1000)
    assert lazy.rung(2) == 0


def test_what_leaves_before_the_end_is_rung_for(lazy: World) -> None:
    """Who has no reason to look any more is woken, so that nobody waits for it in vain."""
    lazy.rung(1), lazy.rung(2)
    for version in (10, 11):
        lazy.put(1.0, version)
        lazy.turn(1)
    assert not lazy.ends[0].flush(0.05)
    assert (lazy.rung(1), lazy.rung(2)) == (0, 1)
    lazy.turn(2)
    assert lazy.ends[0].flush(30.0)


def test_the_thread_takes_what_nobody_reads(lazy: World) -> None:
    """Its client computes for long: without a ring, the thread still looks now and then."""
    lazy.ends[2].start()
    lazy.put(1.0, 10)
    until(lambda: lazy.got(2) == 1.0, "the model")


def test_the_thread_looks_half_way_through_the_steps_of_its_client(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that its client finds most of what it uses; not in short steps, nor when it has stopped stepping."""
    end = world.ends[1]
    monkeypatch.setattr("swiftfl.transports.messages.progress.time.monotonic", lambda: 100.0)
    end._step = 0.1
    for passed, left in ((0.0, 0.05), (0.051, 0.099), (0.04, 0.11)):
        end._step_at = 100.0 - passed
        assert end._until_mid_step() == pytest.approx(left)
    for step, passed in ((0.001, 0.0), (5.0, 0.0), (0.1, 0.5)):
        end._step, end._step_at = step, 100.0 - passed
        assert end._until_mid_step() == end.calm
    monkeypatch.undo()
