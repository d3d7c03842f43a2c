"""Programs on a pseudo-terminal, and what is to be seen on its screen (pyte)."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Sequence
from types import TracebackType

import pyte


class Terminal:
    """A program whose standard streams are a terminal of so many columns."""

    def __init__(self, command: Sequence[str], columns: int, lines: int = 40) -> None:
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        environment = {
            key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")
        }
        environment["TERM"] = "xterm-256color"
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
        )
        os.close(theirs)
        self._ours = ours

    def until(self, seen: Callable[[str], bool], seconds: float = 90.0) -> str:
        """The screen when it shows what is waited for; a failure where it never does."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            open_still = self._read(0.1)
            if seen(self.text):
                return self.text
            if not open_still:
                break
        raise AssertionError(f"never seen; the screen is:\n{self.text}")

    def to_end(self, seconds: float = 90.0) -> str:
        """The screen when the program has ended."""
        end = time.monotonic() + seconds
        while self._read(0.1) and time.monotonic() < end:
            pass
        self.process.wait(60)
        return self.text

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    def _read(self, seconds: float) -> bool:
        """Whether the program may still write."""
        if not select.select([self._ours], [], [], seconds)[0]:
            return True
        with contextlib.suppress(OSError):
            if data := os.read(self._ours, 1 << 16):
                self._stream.feed(data)
                return True
        return False

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._ours)
