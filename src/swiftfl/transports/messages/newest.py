"""Newest-value channels: a message that waits is superseded, one that was read stays until the next.

At most one message is under way from a client to each neighbour, and it counts as under way until the
neighbour has taken it: a neighbour that is stopped holds one buffer of its sender, never more.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from swiftfl.transports.codec import IDENTITY, Codec, incremental
from swiftfl.transports.messages.fragments import LEARNING
from swiftfl.transports.messages.message import Message
from swiftfl.transports.messages.progress import ProgressThread
from swiftfl.vector import Vector

T = TypeVar("T")
log = logging.getLogger(__name__)
_AFTER_LATE = 64  # messages for which a client is rung that is usually not
_LATE = 2  # newer ones that wait for a client before it counts as late: its steps may be as long as ours


class NewestSender:
    """From one client to several. One thread may `put`.

    Who looks by itself when it uses what came (`lazily`) is rung for the first messages only, by which both
    find out how they travel, and for a while when it turns out to look more seldom than we put: otherwise a
    client that is slower than its neighbours would find the first of those that they have put meanwhile.

    Of the slots at most one per destination is being sent and one is the newest; so with two more than
    destinations there is always one to write to. They are made when they are first needed.
    """

    def __init__(
        self,
        progress: ProgressThread,
        tag: int,
        like: Vector,
        to: Sequence[int],
        codec: Codec = IDENTITY,
        lazily: bool = False,
    ) -> None:
        self._progress, self._tag, self._like, self._codec = progress, tag, like, codec
        self._to = tuple(to)
        self._lazily = lazily
        self._to_ring = dict.fromkeys(self._to, LEARNING)  # for how many messages to each
        self._unheard: dict[int, int] = {}  # who was not rung for what is under way, and what waits behind it
        self._slots: list[Message] = []
        self._pins: list[int] = []
        self._newest = -1
        self._serial = 0
        self._quiet = False
        self._sent = dict.fromkeys(self._to, 0)
        self._under_way: set[int] = set()
        self._changing = incremental(codec)
        self._slot_code: dict[int, int] = {}  # where codes may hold changes only: of which code a slot is,
        self._sent_code: dict[int, int] = {}  # and which code a destination was sent last
        self._lock = threading.Lock()  # held for moments only, never during a copy or a call of MPI
        progress.begin.append(self._begin)

    def put(self, x: Vector, version: int = 0, quiet: bool = False) -> None:
        """One copy, and a small message is sent from here; the thread does the rest.

        What is quiet arrives when somebody looks anyway.
        """
        if not self._to:
            return
        with self._lock:
            slot, since = self._free(), self._oldest()
        self._slots[slot].fill(x, version, weight=time.time(), since=since)
        with self._lock:
            if self._changing is not None:
                self._slot_code[slot] = self._changing.serial
            self._newest = slot
            self._serial += 1
            self._quiet = quiet
        if self._progress.stir(self._waits) and self._lazily:
            self._ring_the_late()

    def _oldest(self) -> int:
        """The code that every destination has or will have: what changed since is for all of them."""
        if self._changing is None:
            return -1
        here = [k for k in self._to if k not in self._progress.gone]
        return min((self._sent_code[k] if self._sent[k] else -1 for k in here), default=-1)

    def _free(self) -> int:
        for slot, pins in enumerate(self._pins):
            if not pins and slot != self._newest:
                return slot
        self._slots.append(Message(self._like.size, self._like.dtype, self._codec))
        self._pins.append(0)
        return len(self._slots) - 1

    def _begin(self) -> None:
        if self._serial == 0:
            return
        gone = self._progress.gone
        with self._lock:
            serial, slot, quiet = self._serial, self._newest, self._quiet
            ready = [k for k in self._to if self._sent[k] < serial and k not in self._under_way]
            ready = [k for k in ready if k not in gone] if gone else ready
            for k in ready:
                self._sent[k] = serial
                self._under_way.add(k)
                if self._changing is not None:
                    self._sent_code[k] = self._slot_code[slot]
            self._pins[slot] += len(ready)
        for k in ready:
            unheard = quiet or (self._lazily and not self._rings(k))
            if unheard:
                self._unheard[k] = 0
            self._progress.send(self._slots[slot].filled, k, self._tag, self._left(slot, k), unheard)

    def _rings(self, k: int) -> bool:
        """Whether a client that looks by itself is rung for its next message."""
        left = self._to_ring[k]
        if left:
            self._to_ring[k] = left - 1
        return bool(left) or self._progress.better_early(k)

    def _ring_the_late(self) -> None:
        """Who has not taken what was put before, all the time since then, is to take it now."""
        for k in self._waiting():
            waiting = self._unheard.get(k)
            if waiting is not None and waiting + 1 >= _LATE:
                self._to_ring[k] = _AFTER_LATE
                self._unheard.pop(k, None)
                self._progress.doorbell.ring(k)
            elif waiting is not None:
                self._unheard[k] = waiting + 1

    def _waiting(self) -> list[int]:
        """For whom there is something newer than what was sent."""
        gone = self._progress.gone
        return [k for k, sent in self._sent.items() if sent < self._serial and k not in gone]

    def _waits(self) -> bool:
        return bool(self._waiting())

    def _left(self, slot: int, k: int) -> Callable[[int], None]:
        def left(count: int) -> None:
            with self._lock:
                self._pins[slot] -= 1
                self._under_way.discard(k)
                self._unheard.pop(k, None)

        return left

    def again(self, k: int) -> None:
        """This destination may have lost what it was sent, as after a restart: it gets the newest."""
        with self._lock:
            self._sent[k] = 0

    @property
    def slots(self) -> int:
        """How many models this holds."""
        return len(self._slots)


class NewestReceiver:
    """The newest from one client. The buffer that is being read is not received into: no torn read."""

    def __init__(
        self,
        progress: ProgressThread,
        tag: int,
        source: int,
        first: Vector,
        codec: Codec = IDENTITY,
        empty: bool = False,
        refusing: Callable[[int, str], None] | None = None,
    ) -> None:
        """`refusing` is told of messages that are none of this run or cannot be decoded, and whose."""
        self._progress, self._tag, self._source = progress, tag, source
        self._refusing = refusing or _log_it
        self._buffers = [Message(first.size, first.dtype, codec) for _ in range(2)]
        self._empty = empty  # until something has come: nothing is here, or else what is here first
        self._first: Vector | None = first.copy()
        self._first.flags.writeable = False
        self._changing = incremental(codec)
        self._images: list[Vector | None] = [None, None]  # where codes may hold changes only: of the buffers
        self._code = -1  # the number of the last one
        self._newest = 0
        self._reading = -1
        self._owed = True  # a receive is to be started
        self._lock = threading.Lock()
        self.refused = 0
        self.count = 0
        self._came = [0.0, 0.0]  # when what is in the buffers did, by `time.monotonic`
        self.published: float | None = None  # when what was read last was, by its sender's clock,
        self.arrived: float | None = None  # and when it came, by our own
        progress.begin.append(self._begin)

    def read(self, use: Callable[[Vector, int], T]) -> T | None:
        """In place where the codec allows; never waits. None if what came cannot be decoded."""
        with self._lock:
            first, at = self._first, self._newest
            self._reading = at
        try:
            message = self._buffers[at]
            if first is not None:
                return None if self._empty else use(first, 0)
            self.published, self.arrived = message.weight, self._came[at]
            try:
                image = self._images[at]
                x = message.vector if image is None else image
            except ValueError as error:
                self.refused += 1
                self._refusing(self._source, str(error))
                return None
            return use(x, message.version)
        finally:
            with self._lock:
                self._reading = -1

    @property
    def version(self) -> int:
        with self._lock:
            return self._buffers[self._newest].version

    def _begin(self) -> None:
        if not self._owed or self._source in self._progress.gone:
            return
        with self._lock:
            spare = 1 - self._newest
            if self._reading == spare:
                return
            self._owed = False
        self._progress.receive(self._buffers[spare].data, self._source, self._tag, self._arrived)

    def _brought_up(self, spare: int) -> bool:
        """Where codes may hold changes only: make them in a copy of what is here; whether that can be."""
        if self._changing is None:
            return True
        before, message = self._images[self._newest], self._buffers[spare]
        image = np.zeros(message.size, message.dtype) if before is None else before.copy()
        try:
            self._code = self._changing.decode_onto(message.code, image, self._code)
        except ValueError as error:
            self._refusing(self._source, str(error))
            return False
        image.flags.writeable = False
        self._images[spare] = image
        return True

    def _arrived(self, count: int) -> None:
        spare = 1 - self._newest  # which nobody reads, and only this thread changes
        message, now = self._buffers[spare], self._buffers[self._newest].version
        whole = message.is_whole(count)
        if not whole and count != -1:
            self._refusing(self._source, "it is no message of this run")
        good = whole and message.version >= now and self._brought_up(spare)
        with self._lock:
            if good:
                self._came[spare] = time.monotonic()
                self._newest = spare
                self._first = None
                self.count += 1
            elif count != -1:
                self.refused += 1
            self._owed = True


def _log_it(source: int, why: str) -> None:
    log.warning("a message of client %d cannot be used: %s", source, why)
