"""Doorbells between clients of one host: a datagram that says "look, a message has come".

MPI wakes nobody: a process that waits for a message must poll, which costs processor time, and the more the
sooner it wants to know. So the sender of a message also rings, and a client sleeps until it is rung. A ring
is only a hint: the message itself always goes through MPI, and a client that cannot be rung (because it is
on another host) polls often instead.

A doorbell is a Unix datagram socket. Its address is a file in a folder that only this user may enter, and
both are removed as soon as all clients have connected to it: from then on nobody else can ring, and nothing
is left behind. Ringing never blocks.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import select
import shutil
import socket
import tempfile
from collections.abc import Sequence

from swiftfl.transports.timespec import timespec

WAKE, CAME, LOOK = range(3)
"""What a ring says: wake up; a message has come; your message arrives in fragments, so keep polling."""

ADDRESS_BYTES = 108
"""Longest address of a Unix socket."""
_RING_BYTES = 5  # the sender's rank, and what the ring says
_MOST_RINGS = 64  # that are read at a time
_COARSE = 0.002  # seconds; epoll counts milliseconds

log = logging.getLogger(__name__)


class _Watched(ctypes.Structure):
    _fields_ = (("descriptor", ctypes.c_int), ("events", ctypes.c_short), ("found", ctypes.c_short))


_ppoll = ctypes.CDLL(None).ppoll
_ppoll.argtypes = (ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_void_p)


class Doorbell:
    """One client's doorbell, and its connections to those of the others."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.address = b""
        self.complete = False  # everybody can be rung, and can ring us
        self._ranks = 0
        self._folder: str | None = None
        self._own: socket.socket | None = None
        self._others: dict[int, socket.socket] = {}
        self._wake: socket.socket | None = None
        self._thread_poll = select.epoll()
        with contextlib.suppress(OSError):
            self._own = self._bind()
            self._wake = _connect(self.address)
            self.unmute_thread()

    def _bind(self) -> socket.socket:
        self._folder = tempfile.mkdtemp(prefix="swiftfl-")
        own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        own.setblocking(False)
        address = os.fsencode(self._folder) + b"/bell"
        own.bind(address)
        self.address = address
        return own

    # --- before the run: connect to each other, then remove the addresses ------------------------

    def connect(self, addresses: Sequence[bytes]) -> None:
        """Connect to these doorbells, in the order of ranks; an address is empty where there is none."""
        self._ranks = len(addresses)
        for k, address in enumerate(addresses):
            if address and k != self.rank:
                with contextlib.suppress(OSError):  # on another host
                    self._others[k] = _connect(address)
        self.complete = self._own is not None and len(self._others) == len(addresses) - 1
        log.debug("rank %d can ring ranks %s", self.rank, sorted(self._others))

    def hide(self) -> None:
        """Remove the address: everybody has connected, and nobody else is to."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    # --- ringing ---------------------------------------------------------------------------------

    def reaches(self, k: int) -> bool:
        return k in self._others

    def ring(self, k: int, what: int = CAME) -> None:
        """Never blocks: if no further ring fits in, there are enough to wake the other."""
        other = self._others.get(k)
        if other is None:
            return
        try:
            other.send(self.rank.to_bytes(4, "little") + bytes([what]))
        except BlockingIOError:
            pass
        except OSError:
            self.complete = False
            gone = self._others.pop(k, None)  # another thread may have noticed it, too
            if gone is not None:
                gone.close()

    def wake(self) -> None:
        """Ring one's own doorbell: whichever thread of this client sleeps at it wakes up."""
        if self._wake is not None:
            with contextlib.suppress(OSError):
                self._wake.send(self.rank.to_bytes(4, "little") + bytes([WAKE]))

    # --- being rung ------------------------------------------------------------------------------

    def sleep(self, seconds: float) -> bool:
        """Until it rings, at most this long; whether it has rung."""
        return _readable(None if self._own is None else self._own.fileno(), seconds)

    def thread_sleep(self, seconds: float) -> bool:
        """The same for the progress thread, which is not woken while it is muted."""
        return self.sleep(seconds) if seconds < _COARSE else bool(self._thread_poll.poll(seconds))

    def mute_thread(self) -> None:
        """The client itself sleeps at the doorbell from now on: do not wake the thread."""
        if self._own is not None:
            self._thread_poll.unregister(self._own)

    def unmute_thread(self) -> None:
        if self._own is not None:
            self._thread_poll.register(self._own, select.EPOLLIN)

    def rings(self) -> list[tuple[int, int]]:
        """Who has rung since the last call, and what for; anything that is not a ring is ignored."""
        found: list[tuple[int, int]] = []
        if self._own is None:
            return found
        with contextlib.suppress(OSError):
            for _ in range(_MOST_RINGS):
                data = self._own.recv(_RING_BYTES + 1)
                rank = int.from_bytes(data[:4], "little")
                if len(data) == _RING_BYTES and rank < self._ranks and data[4] in (WAKE, CAME, LOOK):
                    found.append((rank, data[4]))
        return found

    def close(self) -> None:
        self.hide()
        for each in (self._own, self._wake, *self._others.values()):
            if each is not None:
                each.close()
        self._own = self._wake = None
        self._others.clear()
        self._thread_poll.close()


def _readable(descriptor: int | None, seconds: float) -> bool:
    """Wait until there is something to read, at most this long; whether there is.

    By ppoll: select knows no descriptors above 1023, and poll counts milliseconds, of which those who poll
    quickly sleep a twentieth.
    """
    watched = _Watched(-1 if descriptor is None else descriptor, select.POLLIN, 0)
    count: int = _ppoll(ctypes.byref(watched), 1, ctypes.byref(timespec(seconds)), None)
    return count > 0


def _connect(address: bytes) -> socket.socket:
    """A socket that rings there; an address that belongs to another user is refused."""
    if os.stat(address).st_uid != os.geteuid():  # noqa: PTH116 - bytes, as they came
        raise PermissionError("this doorbell belongs to another user")
    end = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        end.setblocking(False)
        end.connect(address)
    except OSError:
        end.close()
        raise
    return end
