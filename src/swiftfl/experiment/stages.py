"""What is being made before a run begins: one line on a terminal, which goes away when the run begins.

Whoever makes something says so with `stage`; that costs nothing where nobody shows it, as in pipes.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_AFTER = 2.0
"""Seconds before the line is shown: most runs begin sooner."""


class StageLine:
    """The line. It is written without locks of others, since engines fork while it may be there.

    The cursor stays at its beginning, so that whatever else is printed takes its place.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._text, self._seen, self._over = "", 0, False
        self._timer = threading.Timer(_AFTER, self.show)
        self._timer.daemon = True
        self._due = False

    def begin(self) -> None:
        self._timer.start()

    def say(self, text: str) -> None:
        self._text = text
        if self._due:
            self.show()

    def show(self) -> None:
        with self._lock:
            self._due = True
            if not self._over and self._text:
                self._write(f"{self._text} ..."[: self._console.width - 1])

    def clear(self) -> None:
        with self._lock:
            if self._seen:
                self._write("")

    def end(self) -> None:
        self._timer.cancel()
        with self._lock:
            self._over = True
            if self._seen:
                self._write("")

    def _write(self, text: str) -> None:
        erased = " " * self._seen + "\r" if self._console.is_jupyter else "\x1b[K"
        self._seen = len(text)
        with contextlib.suppress(OSError, ValueError):  # a standard error that nobody reads any more
            if self._console.is_jupyter:
                self._console.file.write(f"\r{erased}{text}\r")
                self._console.file.flush()
            else:
                os.write(self._console.file.fileno(), f"\r{erased}{text}\r".encode())


class _Shown:
    line: StageLine | None = None


def show_stages(console: Console) -> None:
    """From here on, where somebody looks on: what is being made, until `stages_over`."""
    stages_over()
    if console.is_jupyter or (console.is_terminal and not console.is_dumb_terminal):
        _Shown.line = StageLine(console)
        _Shown.line.begin()


def stage(text: str) -> None:
    """Say what is being made."""
    if _Shown.line is not None:
        _Shown.line.say(text)


def stages_over() -> None:
    """The run begins, or has failed: the line goes away."""
    line, _Shown.line = _Shown.line, None
    if line is not None:
        line.end()


def clear_stages() -> None:
    """Something else is about to be printed; the next stage is shown below it."""
    if _Shown.line is not None:
        _Shown.line.clear()
