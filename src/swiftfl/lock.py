"""One process at a time writes a folder: a run's, or one that a dataset is downloaded into.

The lock belongs to the process that holds it and goes with it, however it ends: a file that a killed
process left behind locks nothing.
"""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from swiftfl.errors import UserError
from swiftfl.files import read_text_file, reported

LOCK = ".lock"
_PATIENCE = 0.5  # seconds for somebody who is just leaving


@contextlib.contextmanager
def locked(folder: Path, patience: float = _PATIENCE, name: str = LOCK) -> Iterator[None]:
    """Hold the lock of a folder; a `UserError` that names the process if another one holds it.

    Waits for `patience` seconds, or for ever if that is negative. A part of a folder that others may write
    meanwhile has a lock of another name.
    """
    file = folder / name
    lock = FileLock(file, timeout=patience, thread_local=False)
    with reported(folder, "write to"):
        try:
            lock.acquire()
        except Timeout:
            raise UserError(
                f"{folder} is in use by {_holder(file)}: wait until that has ended, or stop it"
            ) from None
    try:
        with contextlib.suppress(OSError):  # on a full disk the lock holds, but does not say whose it is
            file.write_text(f"process {os.getpid()} on {platform.node()}\n")
        yield
    finally:
        with contextlib.suppress(OSError):  # while it is held: whoever waits sees that the file is gone
            file.unlink(missing_ok=True)
        lock.release()


def _holder(file: Path) -> str:
    with contextlib.suppress(UserError):
        return read_text_file(file, 1 << 10).strip() or "another process"
    return "another process"
