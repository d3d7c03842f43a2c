"""A link that a test can cut, heal and slow down: a proxy on loopback between two nodes."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time

_PIECE = 16 << 10


class Proxy:
    """Forwards TCP connections to a port; `rate` is in bytes per second and direction, None is no limit.

    What comes in goes out `delay` seconds later.
    """

    def __init__(self, to: int, rate: float | None = None, delay: float = 0.0) -> None:
        self._to, self.rate, self.delay = to, rate, delay
        self.carried = 0
        self._cut = False
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Whatever is open breaks, and nothing new gets through."""
        self._cut = True
        for one in list(self._open):
            self._end(one)

    def heal(self) -> None:
        self._cut = False

    def close(self) -> None:
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self._listener.accept()
            except OSError:
                if self._listener.fileno() < 0:
                    return
                continue
            try:
                there = socket.create_connection(("127.0.0.1", self._to))
            except OSError:  # nobody listens there any more, or not yet
                here.close()
                continue
            if self._cut:
                here.close()
                there.close()
                continue
            self._open |= {here, there}
            for one, other in ((here, there), (there, here)):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * _PIECE)
                threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    def _pump(self, one: socket.socket, other: socket.socket) -> None:
        due = time.monotonic()
        under_way: queue.Queue[tuple[float, bytes]] = queue.Queue(
            4 + int(self.delay * (self.rate or 0.0) / _PIECE)
        )
        threading.Thread(target=self._deliver, args=(under_way, one, other), daemon=True).start()
        with contextlib.suppress(OSError):
            while data := one.recv(_PIECE):
                if self.rate is not None:
                    due = max(due, time.monotonic() - 0.05) + len(data) / self.rate
                    time.sleep(max(0.0, due - time.monotonic()))
                under_way.put((time.monotonic() + self.delay, data))
        under_way.put((0.0, b""))

    def _deliver(
        self, under_way: queue.Queue[tuple[float, bytes]], one: socket.socket, other: socket.socket
    ) -> None:
        broken = False
        while (item := under_way.get())[1]:
            if not broken:
                time.sleep(max(0.0, item[0] - time.monotonic()))
                try:
                    other.sendall(item[1])
                    self.carried += len(item[1])
                except OSError:
                    broken = True  # what is left is taken out, so that nobody waits to put it in
                    self._end(one)
        self._end(one)
        self._end(other)

    def _end(self, one: socket.socket) -> None:
        self._open.discard(one)
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
