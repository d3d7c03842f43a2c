"""Signals that ask a run to stop where it can go on later."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
"""Ctrl-C, a service manager, a terminal that closes, and what batch systems and MPI launchers pass on."""
_Handler = Callable[[int, FrameType | None], object] | int | None


class StopRequest:
    """Whether somebody has asked for a stop; call it to find out."""

    def __init__(self) -> None:
        # Not a threading.Event: its lock may be held by the very thread that the signal interrupts.
        self.number: int | None = None

    def __call__(self) -> bool:
        return self.number is not None


@contextlib.contextmanager
def stop_requests(on_request: Callable[[], None] | None = None) -> Iterator[StopRequest]:
    """Turn the signals in `STOPPING` into a request to stop; `on_request` is called at the first one.

    After the first request Ctrl-C does what it did before, so that a second one is not awaited; the other
    signals may come again. A signal that is ignored (nohup, background jobs) stays ignored. Python delivers
    signals to the main thread only: in any other this does nothing.
    """
    request = StopRequest()
    before = _handlers()

    def ask(number: int, frame: object) -> None:
        first, request.number = not request(), number
        if signal.SIGINT in before:
            signal.signal(signal.SIGINT, before[signal.SIGINT])
        if first and on_request is not None:
            on_request()

    for number in before:
        signal.signal(number, ask)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _handlers() -> dict[signal.Signals, _Handler]:
    """What the signals do now, of those that may be changed."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    found = {number: signal.getsignal(number) for number in STOPPING}
    return {number: now for number, now in found.items() if now is not None and now != signal.SIG_IGN}
