"""A worker process of the job pool: jobs come in as lines of JSON, progress and results go out the same way.

Its argument is the process of the pool. It imports torch once for many jobs. SIGINT interrupts the job,
which saves if it can, and ends the process. So does the end of the pool's process, whatever ended it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, TextIO

from swiftfl.errors import UserError
from swiftfl.files import json_text
from swiftfl.logs import switch_on_logs

_PARENT_CHECK_SECONDS = 1.0
_SAVE_SECONDS = 60.0


def serve(jobs: TextIO, messages: TextIO) -> None:
    """Run one job after the other until there are no more."""

    def send(message: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):  # the pool is gone: `_end_with` ends this process
            messages.write(json_text(message) + "\n")
            messages.flush()

    for line in iter(jobs.readline, ""):
        job = json.loads(line)
        try:
            result = load(job["function"])(lambda done: send({"done": done}), **job["arguments"])
            send({"result": result})
        except UserError as error:
            send({"failed": str(error)})
        except Exception as error:  # whatever a job may raise: the pool reports it and goes on
            send({"failed": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()})


def load(function: str) -> Callable[..., Any]:
    """The function of a job.

    >>> load("math:sqrt")(9.0)
    3.0
    """
    module, name = function.split(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def _end_with(parent: int) -> None:
    """Interrupt this process when its parent is gone; end it by force if that does not help."""
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK_SECONDS)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(_SAVE_SECONDS)
    os._exit(1)


def main() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent may have ignored it
    threading.Thread(target=_end_with, args=(int(sys.argv[1]),), daemon=True).start()
    messages = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed must not mix with the messages
    switch_on_logs()
    try:
        serve(sys.stdin, messages)
    except KeyboardInterrupt:
        os._exit(0)  # flushing a broken pipe at exit would fail


if __name__ == "__main__":
    main()
