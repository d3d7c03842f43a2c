"""Requests that no memory of this machine can hold are refused before anything is allocated."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from swiftfl.errors import UserError

_log = logging.getLogger(__name__)

_LIMIT = Path("/sys/fs/cgroup/memory.max")
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


def _readable(size: float) -> str:
    """
    >>> _readable(3_200_000_000), _readable(12), _readable(1e30)
    ('3.2 GB', '12 bytes', '1e+15 PB')
    """
    power = 0
    while size >= 1000 and power < len(_UNITS) - 1:
        size, power = size / 1000, power + 1
    return f"{size:.3g} {_UNITS[power]}"
