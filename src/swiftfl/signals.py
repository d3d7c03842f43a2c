"""Signals that ask a run to stop where it can go on later: the one place that installs handlers for them."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
"""Ctrl-C, a service manager, a terminal that closes, and what batch systems and MPI launchers pass on."""
_Handler = Callable[[int, FrameType | None], object] | int | None


class StopRequest:
    """Whether somebody has asked for a stop; call it to find out."""

    def __init__(self) -> None:
        # Not a threading.Event: its lock may be held by the very thread that the signal interrupts.
        self.number: int | None = None
        self._act: Callable[[], None] | None = None

    def __call__(self) -> bool:
        return self.number is not None

    def then(self, act: Callable[[], None]) -> None:
        """What to do at the request, in the signal handler; at once if there was one already."""
        self._act = act
        if self():
            act()

    def ask(self, number: int) -> None:
        first, self.number = not self(), number
        if first and self._act is not None:
            self._act()


def interrupt_at_signals() -> None:
    """Let every signal in `STOPPING` end a command as Ctrl-C does, where it would kill the process."""
    for number, now in _handlers().items():
        if now is signal.SIG_DFL:
            signal.signal(number, _interrupt)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Turn the signals in `STOPPING` into a request to stop.

    After the first request Ctrl-C does what it did before, so that a second one is not awaited; the other
    signals may come again. A signal that is ignored (nohup, background jobs) stays ignored. Python delivers
    signals to the main thread only: in any other this does nothing.
    """
    request = StopRequest()

    def ask(number: int, frame: object) -> None:
        if signal.SIGINT in before:
            signal.signal(signal.SIGINT, before[signal.SIGINT])
        request.ask(number)

    with taken_by(ask) as before:
        yield request


@contextlib.contextmanager
def taken_by(take: Callable[[int, FrameType | None], None]) -> Iterator[Mapping[signal.Signals, _Handler]]:
    """Let a function take every signal in `STOPPING` that is not ignored; gives what they did before."""
    before = _handlers()
    for number in before:
        signal.signal(number, take)
    try:
        yield before
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def leave_to_the_parent() -> None:
    """Ignore what reaches all processes of a terminal or a job, in a child whose parent decides."""
    for number in (*STOPPING, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)


def pass_on(numbers: Iterable[int], send: Callable[[int], object]) -> None:
    """Send these signals to the process that this one stands in for; those that are ignored stay ignored."""
    for number in numbers:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, frame: send(number))


def hear_of_children() -> None:
    """Let children wait until they are asked for; where a wrapper ignores this signal, they vanish."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def end_by(number: int) -> None:
    """End this process by a signal, as another was ended."""
    with contextlib.suppress(OSError):  # of one that cannot be caught
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _handlers() -> dict[signal.Signals, _Handler]:
    """What the signals do now, of those that may be changed."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    found = {number: signal.getsignal(number) for number in STOPPING}
    return {number: now for number, now in found.items() if now is not None and now != signal.SIG_IGN}


def signal_name(number: int) -> str:
    """SIGKILL for 9; signals without a name have their number.

    >>> signal_name(9), signal_name(37)
    ('SIGKILL', 'signal 37')
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
