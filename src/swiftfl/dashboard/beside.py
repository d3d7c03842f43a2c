"""A dashboard beside a run: a process of its own, which only reads files, with less priority than the run."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO

from swiftfl.dashboard import require_server
from swiftfl.errors import UserError
from swiftfl.fresh import fresh_python

_MOST_SAID = 100_000
_PATIENCE = 5.0  # seconds for a server that is asked to end


class DashboardBeside:
    """Serves a run folder, which may appear later, as long as the block lasts.

    The process ends with this one, however that ends: it waits for the end of its standard input. Signals of
    the terminal do not reach it, so that a run that is stopped is seen to stop.
    """

    def __init__(self, folder: Path) -> None:
        require_server()
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self._said: IO[str] | None = None
        self._why = ""
        self.url = ""

    def __enter__(self) -> DashboardBeside:
        command = fresh_python("swiftfl", "dashboard", "--beside", "--", str(self._folder.absolute()))
        self._said = tempfile.TemporaryFile("w+", errors="replace")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        if not self.url:
            self.__exit__(None, None, None)
            raise UserError(f"the dashboard did not start: {self._why}")
        print(f"Dashboard: {self.url}", file=sys.stderr, flush=True)
        return self

    def stay(self) -> None:
        """After the run: on a terminal, until Ctrl-C; elsewhere nobody would end it, and it ends at once."""
        if self._process is not None and sys.stdin.isatty() and sys.stderr.isatty():
            print(f"The dashboard stays at {self.url} until Ctrl-C.", file=sys.stderr, flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                self._process.wait()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._said is not None:
            self._said.seek(0)
            lines = self._said.read(_MOST_SAID).strip().splitlines() or ["it gave no address"]
            self._why = lines[-1].removeprefix("swiftfl: ")
            self._said.close()
            self._said = None


def give_way() -> None:
    """Less priority than the run."""
    with contextlib.suppress(OSError):
        os.nice(5)
