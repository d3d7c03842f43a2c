"""Files that were open before a fork, opened once more: a place in a file is shared by all who inherited it.

A dataset that reads its samples by position moves to one and reads it. Of two processes that share the place
one would read where the other has moved to, and nobody would notice.
"""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path

_OPEN = Path("/proc/self/fd")
_ACCESS = os.O_RDONLY | os.O_WRONLY | os.O_RDWR
_STANDARD = 2  # the largest number of a standard stream


def reopen_files() -> None:
    """In a fork: files that are only read get a place of their own, which is where they were."""
    with suppress(OSError):
        for file in [int(entry.name) for entry in _OPEN.iterdir()]:
            if file > _STANDARD:
                with suppress(OSError):  # the folder's own, or one that may not be opened any more
                    _reopen(file)


def _reopen(file: int) -> None:
    flags = fcntl.fcntl(file, fcntl.F_GETFL)
    if flags & _ACCESS != os.O_RDONLY or not stat.S_ISREG(os.fstat(file).st_mode):
        return
    place = os.lseek(file, 0, os.SEEK_CUR)
    own = os.open(_OPEN / str(file), os.O_RDONLY | flags & os.O_DIRECT)
    try:
        os.lseek(own, place, os.SEEK_SET)
        os.dup2(own, file, os.get_inheritable(file))
    finally:
        os.close(own)
