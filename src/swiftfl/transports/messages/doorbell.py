"""Doorbells between clients of one host: a byte that says "look, something has come".

MPI wakes nobody: who waits for a message must look again and again, which costs processor time, and the
more the sooner it wants to know. So whoever sends a message also rings, and a client sleeps until it is
rung. A ring is only a hint: the message itself always goes through MPI, and who cannot be rung (because it
is on another host) looks often instead. The bell is a datagram socket in Linux's abstract namespace: it has
no file, never blocks the one who rings, and ends with its process.
"""

from __future__ import annotations

import contextlib
import secrets
import select
import socket
from collections.abc import Sequence

HALLO, CAME, LOOK = range(3)
"""What a ring says: wake up; a message has come; your message is taken in pieces, so look after it."""

NAME_BYTES = 24
_COARSE = 0.002  # seconds; epoll counts milliseconds


class Doorbell:
    """One client's bell, and those of the others as far as they can be rung."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.name = b""
        self._others: dict[int, bytes] = {}
        self.complete = False  # everybody can be rung, and can ring us
        self._socket: socket.socket | None = None
        self._self = rank.to_bytes(4, "little")
        self._ear = select.epoll()  # of the thread, which can be covered while it sleeps
        with contextlib.suppress(OSError):
            self._socket = self._bind()
            self.uncover()

    def _bind(self) -> socket.socket:
        bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        name = b"swiftfl-" + secrets.token_hex(NAME_BYTES // 2 - 4).encode()
        bell.bind(b"\0" + name)
        bell.setblocking(False)
        self.name = name
        return bell

    def meet(self, names: Sequence[bytes]) -> None:
        """The names of all, in the order of ranks; empty for one that has no bell."""
        self._others = {k: b"\0" + name for k, name in enumerate(names) if name and k != self.rank}
        self.complete = self._socket is not None and len(self._others) == len(names) - 1
        for k in list(self._others):
            self.ring(k, HALLO)  # on another host nobody is there to hear it

    def reaches(self, k: int) -> bool:
        return k in self._others

    def ring(self, k: int, what: int = CAME) -> None:
        """Never waits: a bell that has been rung so often that no ring fits is heard anyway."""
        address = self._others.get(k)
        if address is None or self._socket is None:
            return
        try:
            self._socket.sendto(self._self + bytes([what]), address)
        except BlockingIOError:
            pass
        except OSError:
            self._others.pop(k, None)  # another thread may have found it out, too
            self.complete = False

    def wake(self) -> None:
        """Ring one's own bell: whoever of this client sleeps at it wakes up."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.sendto(self._self + bytes([HALLO]), b"\0" + self.name)

    def sleep(self, seconds: float) -> bool:
        """Until it rings, at most so long; whether it has rung."""
        return bool(select.select([] if self._socket is None else [self._socket], [], [], seconds)[0])

    def doze(self, seconds: float) -> bool:
        """The same for the thread, which does not hear the bell while it is covered."""
        return self.sleep(seconds) if seconds < _COARSE else bool(self._ear.poll(seconds))

    def cover(self) -> None:
        """The client itself sleeps at the bell from now on: do not wake the thread."""
        if self._socket is not None:
            self._ear.unregister(self._socket)

    def uncover(self) -> None:
        if self._socket is not None:
            self._ear.register(self._socket, select.EPOLLIN)

    def heard(self) -> list[tuple[int, int]]:
        """Who has rung since the last call, and what for."""
        rings: list[tuple[int, int]] = []
        if self._socket is None:
            return rings
        with contextlib.suppress(OSError):
            while len(rings) < 64:
                said = self._socket.recv(8)
                rings.append((int.from_bytes(said[:4], "little"), said[4]))
        return rings

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._ear.close()
