"""Progress of messages: by the client itself whenever it deals with others, and by a thread otherwise.

MPI moves messages only while somebody calls it, and notifies nobody of an arrival. So clients ring each
other's doorbells (`messages.doorbell`), and sleep in between. Whoever is woken advances all transfers:

- the client itself, where it publishes, reads (small models) or waits: nothing is faster than that, and what
  a client is going to look at by itself is sent without ringing, because every wake-up costs a processor more
  than a message does;
- otherwise the thread: when it is rung, and now and then without, because rings are only hints.

Messages that cannot be copied in one go (over TCP, or where the kernel does not allow it) arrive in
fragments, and both ends have to poll: then, and for those who cannot be rung, polls follow each other quickly
at first, and ever more slowly if nothing happens: a neighbour that is stopped must keep nobody busy.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from swiftfl.transports.base import Stopped
from swiftfl.transports.codec import Bytes
from swiftfl.transports.messages.doorbell import CAME, LOOK, WAKE
from swiftfl.transports.messages.fragments import MessageFragments
from swiftfl.transports.messages.wire import CONTROL_TAGS, LOST, MODEL, SHOWN, Transfer, Wire

CALM, WATCHFUL = 0.2, 0.05
"""Seconds between two looks of the thread where everybody can be rung: as a rule, and while something large
is under way of which the other end was not told, and which may need us for its next piece."""
SHORT, LONG, LONGEST = 0.0002, 0.001, 0.005
"""Otherwise: just after something was sent, and later; the slower a client steps, the longer (to a tenth of
a step), for every look costs up to 80 microseconds of a processor."""
_LARGE = 1 << 20  # bytes; with more, a client leaves the copying to its thread
_PIECES = 1 << 16  # bytes; with more, a message may have to be sent in pieces
_JUST_NOW = 0.0005  # seconds; who has looked needs not look again
_SHORTEST = 0.02  # seconds; in the middle of shorter steps nobody looks
_KNOWN_AFTER = 24  # rings from which it is known how messages travel
_WAITING = (0.00005, 0.0005)  # first and longest sleep of one who waits: for pieces that are under way,
_WAITING_UNSURE = (0.0005, 0.005)  # where messages come in pieces, or that is not known yet,
_WAITING_RUNG = (0.005, 0.02)  # and where a ring means that all of it is there

Done = Callable[[int], None]


class ProgressThread:
    """All transfers of one client. `done(bytes)` is called once for each, by whoever moves them."""

    def __init__(self, wire: Wire) -> None:
        self.wire, self.doorbell = wire, wire.doorbell
        self.gone: set[int] = set()
        self.stopped = False
        self.waited = 0.0
        self.failure: BaseException | None = None
        self.begin: list[Callable[[], None]] = []  # what may start new transfers, asked every time
        self.attend: Callable[[], None] = _nothing  # what else is to be done by whoever has looked
        self.calm = CALM
        self._moving = threading.RLock()
        self._transfers: list[Transfer] = []
        self._about: list[tuple[Done, int | None]] = []  # of each: whom to tell, and to whom it is sent
        self._largest = 0
        self._fragments = MessageFragments()
        self._put_at, self._long = time.monotonic(), LONGEST
        self._turned = 0.0  # when everything was moved on last
        self._step_at, self._step = 0.0, 0.0  # when the client began its step, and how long the last one took
        self._announced = 0  # how many messages were rung for
        self._untold = 0  # large messages under way of which the other end was not told
        self._sent = False  # to somebody who cannot be rung
        self._closing = False
        self._free = threading.Event()  # the client does not wait, so the thread has to look
        self._free.set()
        self._thread = threading.Thread(target=self._run, name="swiftfl-messages", daemon=True)

    def start(self) -> None:
        self._thread.start()

    # --- transfers (only while moving: in `begin`, in `done`, or within `moving`) -----------------

    @property
    def moving(self) -> AbstractContextManager[object]:
        return self._moving

    def send(self, data: Bytes, to: int, tag: int, done: Done, quiet: bool = False) -> None:
        """Start to send it, and ring, unless it may wait until the other looks by itself."""
        untold = quiet and data.size > _PIECES and tag != MODEL
        self._untold += untold
        self._add(self.wire.send(data, to, tag), self._told(to, done, untold=untold), to)
        self._largest = max(self._largest, data.size)
        if quiet:
            return
        if self.doorbell.reaches(to):
            self.doorbell.ring(to, WAKE if tag in CONTROL_TAGS else CAME)
        else:
            self._sent = True

    def receive(self, data: Bytes, source: int, tag: int, done: Done) -> None:
        rung = tag not in CONTROL_TAGS and tag != SHOWN  # which is sent without ringing
        self._add(self.wire.receive(data, source, tag), self._told(source, done, rung), None)

    def _add(self, transfer: Transfer, done: Done, to: int | None) -> None:
        self._transfers.append(transfer)
        self._about.append((done, to))

    def _told(self, other: int, done: Done, rung: bool = False, untold: bool = False) -> Done:
        def tell(count: int) -> None:
            self._fragments.over(other)
            self._untold -= untold
            if count == LOST:
                self.gone.add(other)
            elif rung:
                self._fragments.arrived(other)
            done(count)

        return tell

    def turn(self) -> bool:
        """Start what can start, move everything on; whether anything arrived or left."""
        with self._moving:
            self._start()
            over = self._take()
            for done, count in over:
                done(count)
            if over:
                self._start()
            self._turned = time.monotonic()
            return bool(over)

    def _start(self) -> None:
        for begin in self.begin:
            begin()

    def _take(self) -> list[tuple[Done, int]]:
        """Those that are over leave the list; what was sent comes first, so that nobody is rung for it."""
        over = self.wire.completed(self._transfers) if self._transfers else []
        if not over:
            return []
        over.sort(key=lambda each: self._about[each[0]][1] is None)
        told = [(self._about[position][0], count) for position, count in over]
        left = sorted(set(range(len(self._about))).difference(position for position, _ in over))
        self._transfers = [self._transfers[position] for position in left]
        self._about = [self._about[position] for position in left]
        return told

    def _look(self, rung: bool) -> bool:
        """A turn, after listening to who has rung; whether anything happened."""
        rings = self.doorbell.rings() if rung else []
        for k, what in rings:
            if what == CAME:
                self._announced += 1
                self._fragments.announced(k)
        moved = self.turn()
        for k, what in rings:
            if what == CAME and self._fragments.missing(k):
                self.doorbell.ring(k, LOOK)
            elif what == LOOK and any(to == k for _, to in list(self._about)):
                self._fragments.note(k)
        self.attend()
        return moved or bool(rings)

    def better_early(self, k: int) -> bool:
        """Whether k should begin to take a model at once, though it does not wait for it yet."""
        return self._largest > _LARGE or self._fragments.usual(k) or not self.doorbell.reaches(k)

    @property
    def _hurried(self) -> bool:
        """Whether looking soon again may bring something on."""
        return self._fragments.under_way or not self.doorbell.complete

    # --- who moves them --------------------------------------------------------------------------

    def stir(self, waits: Callable[[], bool]) -> bool:
        """There is something new to send; `waits` if it still does after an attempt to start it.

        Whether everything that can start has started; otherwise the thread will see to it.
        """
        now = time.monotonic()
        self._long = min(max(LONG, 0.1 * (now - self._put_at)), LONGEST)
        self._put_at = now
        if self._largest > _LARGE or not self._moving.acquire(blocking=False):
            self.doorbell.wake()
            return False
        try:
            self._start()
            if waits() or now - self._turned > _JUST_NOW:
                self.turn()
        finally:
            self._moving.release()
        return True

    def glance(self) -> None:
        """Take what has come, just before it is used, unless that is left to the thread."""
        if self._largest > _LARGE or time.monotonic() - self._turned <= _JUST_NOW:
            return
        if self._moving.acquire(blocking=False):
            try:
                self.turn()
            finally:
                self._moving.release()

    def _run(self) -> None:
        pause, rung = SHORT, True
        try:
            while not self._closing:
                self._free.wait()
                news = self._look(rung) or self._sent
                self._sent = False
                pause = self._pause(pause, news)
                rung = self.doorbell.thread_sleep(pause)
        except BaseException as error:  # told to the client at its next call
            self.failure = error

    def _pause(self, last: float, news: bool) -> float:
        """How long the thread may sleep after a look if nobody rings."""
        if not self._hurried:
            return min(self._until_mid_step(), WATCHFUL if self._untold else self.calm)
        if news:
            return SHORT
        return min(2 * last, LONG if self._largest > _LARGE else self._long)

    def begin_step(self) -> None:
        """The client has published, and will use what its neighbours publish at the end of its step."""
        now = time.monotonic()
        self._step, self._step_at = now - self._step_at, now

    def _until_mid_step(self) -> float:
        """Half way through a step, the thread takes what has come: the client has the less to copy."""
        step, passed = self._step, time.monotonic() - self._step_at
        if not _SHORTEST <= step <= self.calm or passed > 2 * step:
            return self.calm
        left = (0.5 * step - passed) % step
        return left if left > 0.25 * step else left + step

    def wait(self, ready: Callable[[], bool]) -> None:
        """Until it is so; raises Stopped when the run is stopped meanwhile."""
        if ready():
            return
        began = time.perf_counter()
        self._free.clear()
        self.doorbell.mute_thread()
        try:
            self._wait(ready)
        finally:
            self.doorbell.unmute_thread()
            self._free.set()
            self.waited += time.perf_counter() - began

    def _wait(self, ready: Callable[[], bool]) -> None:
        pause, rung = 0.0, True
        while True:
            self.check()
            if self.stopped:
                raise Stopped
            news = self._look(rung)
            if ready():
                return
            first, longest = self._sleeps()
            pause = first if news else min(max(first, 2 * pause), longest)
            rung = self.doorbell.sleep(pause)

    def _sleeps(self) -> tuple[float, float]:
        if self._hurried:
            return _WAITING
        unsure = self._fragments.expected or self._announced < _KNOWN_AFTER
        return _WAITING_UNSURE if unsure else _WAITING_RUNG

    def check(self) -> None:
        """Raise what ended the thread, if anything did."""
        if self.failure is not None:
            raise self.failure

    def flush(self, seconds: float) -> bool:
        """Wait, at most so long, until everything has left; whether it has."""
        end = time.monotonic() + seconds
        self.turn()
        with self._moving:
            for k in {to for _, to in self._about if to is not None}:
                self.doorbell.ring(k, WAKE)  # it may not have been told
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
        self._free.set()
        self.doorbell.wake()
        if self._thread.is_alive():
            self._thread.join()
        with self._moving:
            for transfer, (_, to) in zip(self._transfers, self._about, strict=True):
                if to is None:
                    transfer.Cancel()
            end = time.monotonic() + 1.0
            while any(to is None for _, to in self._about) and time.monotonic() < end:
                self._take()
            self.doorbell.close()
            return not self._sends()

    def _sends(self) -> int:
        """How many are on their way to somebody who is there."""
        return sum(to is not None and to not in self.gone for _, to in self._about)


def _nothing() -> None:
    """There is nothing else to be done."""
