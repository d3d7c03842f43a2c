"""What a client does beside its gradient, in a thread of its own.

A gradient leaves the interpreter for most of its time, so the thread gets on meanwhile. Only one of the two
ever uses the transport: while something is going on here, the client computes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from swiftfl.vector import Vector

Work = Callable[[], Vector]


class Background:
    """Begins one thing at a time; the thread starts with the first."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Work] = SimpleQueue()
        self._done: SimpleQueue[Vector | BaseException] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def begin(self, work: Work) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="swiftfl-background", daemon=True)
            self._thread.start()
        self._work.put(work)

    def result(self) -> Vector:
        """Of what was begun, when it is done; what it raised is raised here."""
        done = self._done.get()
        if isinstance(done, BaseException):
            raise done
        return done

    def _run(self) -> None:
        while True:
            work = self._work.get()
            try:
                self._done.put(work())
            except BaseException as error:  # the client's: it asks for the result
                self._done.put(error)
