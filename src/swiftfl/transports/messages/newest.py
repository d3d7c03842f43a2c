"""Newest-value channels: a message that waits is superseded, one that was read stays until the next.

At most one message is under way from a client to each neighbour, and it counts as under way until the
neighbour has taken it: a neighbour that is stopped holds one buffer of its sender, never more.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from swiftfl.transports.codec import IDENTITY, Codec
from swiftfl.transports.messages.message import Message
from swiftfl.transports.messages.progress import ProgressThread
from swiftfl.vector import Vector

T = TypeVar("T")
log = logging.getLogger(__name__)


class NewestSender:
    """From one client to several. One thread may `put`.

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
    ) -> None:
        self._progress, self._tag, self._like, self._codec = progress, tag, like, codec
        self._to = tuple(to)
        self._slots: list[Message] = []
        self._pins: list[int] = []
        self._newest = -1
        self._serial = 0
        self._quiet = False
        self._sent = dict.fromkeys(self._to, 0)
        self._under_way: set[int] = set()
        self._lock = threading.Lock()  # held for moments only, never during a copy or a call of MPI
        progress.begin.append(self._begin)

    def put(self, x: Vector, version: int = 0, quiet: bool = False) -> None:
        """One copy, and a small message is sent from here; the thread does the rest.

        What is quiet leaves and arrives when somebody looks anyway.
        """
        if not self._to:
            return
        with self._lock:
            slot = self._free()
        self._slots[slot].fill(x, version)
        with self._lock:
            self._newest = slot
            self._serial += 1
            self._quiet = quiet
        if not quiet:
            self._progress.stir(self._waits)

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
            self._pins[slot] += len(ready)
        for k in ready:
            self._progress.send(self._slots[slot].filled, k, self._tag, self._left(slot, k), quiet)

    def _waits(self) -> bool:
        return any(sent < self._serial and k not in self._progress.gone for k, sent in self._sent.items())

    def _left(self, slot: int, k: int) -> Callable[[int], None]:
        def left(count: int) -> None:
            with self._lock:
                self._pins[slot] -= 1
                self._under_way.discard(k)

        return left

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
    ) -> None:
        self._progress, self._tag, self._source = progress, tag, source
        self._buffers = [Message(first.size, first.dtype, codec) for _ in range(2)]
        self._first: Vector | None = first.copy()  # until something has come
        self._first.flags.writeable = False
        self._newest = 0
        self._reading = -1
        self._owed = True  # a receive is to be started
        self._lock = threading.Lock()
        self.refused = 0
        self.count = 0
        progress.begin.append(self._begin)

    def read(self, use: Callable[[Vector, int], T]) -> T | None:
        """In place where the codec allows; never waits. None if what came cannot be decoded."""
        with self._lock:
            first, at = self._first, self._newest
            self._reading = at
        try:
            message = self._buffers[at]
            if first is not None:
                return use(first, 0)
            try:
                x = message.vector
            except ValueError as error:
                self.refused += 1
                log.warning("a message of client %d cannot be decoded: %s", self._source, error)
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

    def _arrived(self, count: int) -> None:
        with self._lock:
            spare = 1 - self._newest
            message, now = self._buffers[spare], self._buffers[self._newest].version
            if message.is_whole(count) and message.version >= now:
                self._newest = spare
                self._first = None
                self.count += 1
            elif count != -1:
                self.refused += 1
            self._owed = True
