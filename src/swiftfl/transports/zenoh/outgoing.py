"""What one end sends to one neighbour, by a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from swiftfl.transports.codec import Bytes
from swiftfl.transports.messages.message import version_in
from swiftfl.transports.messages.wire import GARBLED
from swiftfl.transports.wire import WireTerms, frames
from swiftfl.transports.zenoh.frames import DATA, PROBE, envelope

_log = logging.getLogger(__name__)
_SMALL = 4096  # bytes; such messages are urgent
_PROBE_AFTER = 1.0  # seconds without an answer


class NeighbourLink(Protocol):
    """What is needed of a session."""

    def put(self, to: str, data: bytes, urgent: bool = False) -> None: ...

    def close(self) -> None: ...


@dataclass
class Half:
    """A send or a receive; it is over when `count` is set."""

    data: Bytes
    tag: int
    serial: int = 0
    count: int | None = None
    probe_at: float | None = None  # once all of it has been sent

    def Cancel(self) -> None:  # noqa: N802 - as MPI calls it
        self.count = GARBLED


@dataclass(frozen=True)
class OutgoingTerms:
    """What stands in the headers of all messages of one end."""

    terms: WireTerms
    own: int
    incarnation: int

    def parts(self, half: Half) -> Iterator[bytes]:
        head = envelope(DATA, half.tag, half.serial)
        version = version_in(half.data)
        for frame in frames(self.terms, self.own, self.incarnation, version, half.serial, half.data):
            yield head + frame


class Outgoing:
    """The thread that sends to one neighbour."""

    def __init__(self, link: NeighbourLink, name: str, terms: OutgoingTerms) -> None:
        self._link, self._name, self._terms = link, name, terms
        self._changed = threading.Condition()
        # So that it grows over restarts, too; clocks may be set back, incarnations never are.
        self._serial = terms.incarnation << 32 if terms.incarnation else time.time_ns()
        self._urgent: deque[bytes] = deque()
        self._large: deque[Half] = deque()
        self._current: tuple[Half, Iterator[bytes]] | None = None
        self._waiting: dict[int, Half] = {}  # for the answer, by serial number
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=f"swiftfl-to-{name}", daemon=True)
        self._thread.start()

    def send(self, half: Half) -> None:
        with self._changed:
            self._queue(half)

    def say(self, what: bytes) -> None:
        """An answer to the neighbour."""
        with self._changed:
            self._urgent.append(what)
            self._changed.notify()

    def again(self, serial: int) -> None:
        """The neighbour has not got all of this message: it goes once more, under a new number."""
        with self._changed:
            half = self._waiting.get(serial)
            if half is not None:
                del self._waiting[serial]
                if self._current is not None and self._current[0] is half:
                    self._current = None
                self._queue(half)

    def _queue(self, half: Half) -> None:
        self._serial += 1
        half.serial, half.probe_at = self._serial, None
        self._waiting[half.serial] = half
        if half.data.size <= _SMALL:
            self._urgent.extend(self._terms.parts(half))
            half.probe_at = time.monotonic() + _PROBE_AFTER
        else:
            self._large.append(half)
        self._changed.notify()

    def taken(self, serial: int) -> bool:
        """The neighbour says that it has this message; whether one was waiting for that."""
        with self._changed:
            half = self._waiting.pop(serial, None)
        if half is not None:
            half.count = half.data.size
        return half is not None

    def forget(self) -> None:
        """Nobody is there: what was under way is over."""
        with self._changed:
            self._urgent.clear()
            self._large.clear()
            self._current = None
            for half in self._waiting.values():
                half.count = half.data.size
            self._waiting.clear()

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()

    def join(self) -> None:
        self._thread.join(1.0)

    def _run(self) -> None:
        while (what := self._next()) is not None:
            data, urgent = what
            try:
                self._link.put(self._name, data, urgent)
            except Exception as error:  # whatever the session raises when it is closed or has lost the link
                _log.debug("cannot send to %s: %s", self._name, error)
                time.sleep(0.05)

    def _next(self) -> tuple[bytes, bool] | None:
        """What to send now; None at the end."""
        with self._changed:
            while True:
                if self._closing:
                    return None
                if self._urgent:
                    return self._urgent.popleft(), True
                if self._current is not None:
                    half, rest = self._current
                    part = next(rest, None)
                    if part is not None:
                        return part, False
                    half.probe_at = time.monotonic() + _PROBE_AFTER
                    self._current = None
                if self._large:
                    half = self._large.popleft()
                    self._current = half, self._terms.parts(half)
                elif not self._probe():
                    self._changed.wait(_PROBE_AFTER if self._waiting else None)

    def _probe(self) -> bool:
        """Ask after messages that were sent and not answered; whether there were any."""
        now = time.monotonic()
        late = [half for half in self._waiting.values() if half.probe_at is not None and half.probe_at <= now]
        for half in late:
            half.probe_at = now + _PROBE_AFTER
            self._urgent.append(envelope(PROBE, half.tag, half.serial))
        return bool(late)
