"""Whoever keeps the messages moving: a thread, and everybody who waits.

MPI moves large messages only while somebody calls it. The thread does, often while there is something
to move and seldom when there is not: a neighbour that is stopped must not keep it busy. A call that has
to wait moves the messages itself meanwhile, which is faster than being woken by the thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from swiftfl.transports.base import Stopped
from swiftfl.transports.messages.wire import LOST, Bytes, Transfer, Wire

SHORT, LONG, LONGEST = 0.0002, 0.001, 0.005
"""Seconds between two looks: just after something was sent, and later; the slower a client steps, the
longer (to a tenth of a step), for every look costs 50 microseconds of a processor."""
_LARGE = 1 << 20  # bytes; what is larger moves in pieces, and a piece moves only when somebody looks
_WAITING = 0.0005

Done = Callable[[int], None]


class Pump:
    """All transfers of one client. `done(bytes)` is called once for each, by whoever moves them."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.gone: set[int] = set()
        self.stopped = False
        self.waited = 0.0
        self.failure: BaseException | None = None
        self.begin: list[Callable[[], None]] = []  # what may start new transfers, asked every time
        self._moving = threading.RLock()
        self._transfers: list[Transfer] = []
        self._about: list[tuple[Done, int | None]] = []  # of each: whom to tell, and to whom it is sent
        self._bell = threading.Event()
        self._rung, self._long, self._longest = time.monotonic(), LONGEST, LONGEST
        self._sent = False
        self._closing = False
        self._waiting = False  # the client waits, and moves everything meanwhile
        self._thread = threading.Thread(target=self._run, name="swiftfl-messages", daemon=True)

    def start(self) -> None:
        self._thread.start()

    # --- transfers (only while moving: in `begin`, in `done`, or within `moving`) -----------------

    @property
    def moving(self) -> AbstractContextManager[object]:
        return self._moving

    def send(self, data: Bytes, to: int, tag: int, done: Done) -> None:
        self._add(self.wire.send(data, to, tag), self._told(to, done), to)
        self._sent = True
        if data.size > _LARGE:
            self._longest = self._long = LONG

    def receive(self, data: Bytes, source: int, tag: int, done: Done) -> None:
        self._add(self.wire.receive(data, source, tag), self._told(source, done), None)

    def _add(self, transfer: Transfer, done: Done, to: int | None) -> None:
        self._transfers.append(transfer)
        self._about.append((done, to))

    def _told(self, other: int, done: Done) -> Done:
        def tell(count: int) -> None:
            if count == LOST:
                self.gone.add(other)
            done(count)

        return tell

    def turn(self) -> bool:
        """Start what can start, move everything on; whether anything arrived or left."""
        with self._moving:
            for begin in self.begin:
                begin()
            over = self._take()
            for done, count in over:
                done(count)
            if over:
                for begin in self.begin:
                    begin()
            return bool(over)

    def _take(self) -> list[tuple[Done, int]]:
        """Those that are over leave the list."""
        over = self.wire.completed(self._transfers) if self._transfers else []
        if not over:
            return []
        told = [(self._about[position][0], count) for position, count in over]
        left = sorted(set(range(len(self._about))).difference(position for position, _ in over))
        self._transfers = [self._transfers[position] for position in left]
        self._about = [self._about[position] for position in left]
        return told

    # --- who moves them --------------------------------------------------------------------------

    def ring(self) -> None:
        """There is something to send: do not sleep on."""
        now = time.monotonic()
        self._long = min(max(LONG, 0.1 * (now - self._rung)), self._longest)
        self._rung = now
        self._bell.set()

    def _run(self) -> None:
        pause = SHORT
        try:
            while not self._closing:
                if not self._waiting:
                    self.turn()
                pause = SHORT if self._sent else min(2 * pause, self._long)
                self._sent = False
                if self._bell.wait(pause):
                    self._bell.clear()
                    pause = SHORT
        except BaseException as error:  # told to the client at its next call
            self.failure = error

    def wait(self, ready: Callable[[], bool]) -> None:
        """Until it is so; raises Stopped when the run is stopped meanwhile."""
        if ready():
            return
        began = time.perf_counter()
        pause = 2e-5
        self._waiting = True
        try:
            while not ready():
                self.check()
                if self.stopped:
                    raise Stopped
                if self.turn():
                    pause = 2e-5
                else:
                    time.sleep(pause)
                    pause = min(2 * pause, _WAITING)
        finally:
            self._waiting = False
            self.waited += time.perf_counter() - began

    def check(self) -> None:
        """Raise what ended the thread, if anything did."""
        if self.failure is not None:
            raise self.failure

    def flush(self, seconds: float) -> bool:
        """Wait, at most so long, until everything has left; whether it has."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.check()
            self.turn()
            with self._moving:
                if not self._sends():
                    return True
            time.sleep(SHORT)
        return False

    def close(self) -> bool:
        """End the thread and the receives; whether nothing was left to be sent."""
        self._closing = True
        self._bell.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._moving:
            for transfer, (_, to) in zip(self._transfers, self._about, strict=True):
                if to is None:
                    transfer.Cancel()
            end = time.monotonic() + 1.0
            while any(to is None for _, to in self._about) and time.monotonic() < end:
                self._take()
            return not self._sends()

    def _sends(self) -> int:
        """How many are on their way to somebody who is there."""
        return sum(to is not None and to not in self.gone for _, to in self._about)
