"""Requests that no memory of this machine can hold are refused before anything is allocated.

And a garbage collector that looks seldom while there are many objects.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from swiftfl.errors import UserError

_log = logging.getLogger(__name__)

_LIMIT = Path("/sys/fs/cgroup/memory.max")
_MOST_OBJECTS = 2**31 - 1
"""What Python's collector can be told."""
OBJECTS_PER_CLIENT = 4
"""New ones after which garbage is looked for: a client's first step makes two dozen that stay."""
_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")


def require_memory(what: str, size: float) -> None:
    """Refuse what needs more bytes than this machine (or its container) has."""
    _log.debug("%s needs %s", what, _readable(size))
    if size > memory_here():
        raise UserError(
            f"{what} needs {_readable(size)} of memory; this machine has {_readable(memory_here())}"
        )


def memory_here() -> int:
    """The memory of this machine in bytes, or the limit of the container if that is lower."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(physical, int(_LIMIT.read_text()))
    except (OSError, ValueError):  # no such limit
        return physical


def free_memory() -> int:
    """Bytes that processes here can still take, as far as that is known; else all that there are."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):  # not Linux
        free = memory_here()
    return min(free, memory_here())


def own_memory() -> int:
    """Bytes of memory that are this process's own; 0 where that is not known."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:"))
    except (OSError, ValueError, StopIteration):
        return 0


@contextlib.contextmanager
def collecting_seldom(clients: int) -> Iterator[None]:
    """Look for garbage in circles only after a few new objects per client.

    Of a run of many clients nearly everything stays, and what goes is in no circle: to look through all of
    it after every few hundred objects, as Python does, takes a tenth of the run and a third of its building.

    >>> with collecting_seldom(1_000_000):
    ...     gc.get_threshold()[0]
    4000000
    """
    before, objects = gc.get_threshold(), min(OBJECTS_PER_CLIENT * clients, _MOST_OBJECTS)
    if 0 < before[0] < objects:  # 0: somebody has turned it off
        gc.set_threshold(objects, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _readable(size: float) -> str:
    """
    >>> _readable(3_200_000_000), _readable(12), _readable(1e30)
    ('3.2 GB', '12 bytes', '1e+15 PB')
    """
    power = 0
    while size >= 1000 and power < len(_UNITS) - 1:
        size, power = size / 1000, power + 1
    return f"{size:.3g} {_UNITS[power]}"
