"""A doorbell within one process: whoever brings a message rings, and the threads that move messages wake.

It has the methods of `messages.doorbell`, where clients of one host ring each other; here nobody else has to
be rung, because zenoh brings messages without being asked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class HouseBell:
    """`closed` is called when whoever uses it has no use for messages any more."""

    complete = True

    def __init__(self, closed: Callable[[], None]) -> None:
        self._closed = closed
        self._client, self._thread = threading.Event(), threading.Event()
        self._muted = False

    def reaches(self, k: int) -> bool:
        return True

    def ring(self, k: int, what: int = 0) -> None:
        """Messages arrive without."""

    def rings(self) -> list[tuple[int, int]]:
        return []

    def wake(self) -> None:
        self._client.set()
        if not self._muted:
            self._thread.set()

    def sleep(self, seconds: float) -> bool:
        return _rung(self._client, seconds)

    def thread_sleep(self, seconds: float) -> bool:
        return _rung(self._thread, seconds)

    def mute_thread(self) -> None:
        self._muted = True

    def unmute_thread(self) -> None:
        self._muted = False
        self._thread.set()  # it may have missed something

    def close(self) -> None:
        self._closed()


def _rung(event: threading.Event, seconds: float) -> bool:
    rung = event.wait(seconds)
    event.clear()
    return rung
