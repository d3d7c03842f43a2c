"""A file in memory without a name, its mappings, and byte-range locks that die with their holder.

The file is a memfd: it has no name that could be left behind, and the kernel frees it with its last
user, however that user ended. Each process opens it anew through /proc, because locks belong to an
open file: descriptors inherited over a fork share theirs and exclude nobody.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
import sys
from collections.abc import Sequence

import numpy as np

from swiftfl.errors import UserError
from swiftfl.vector import Vector

OFD_SETLK = 37  # fcntl.F_OFD_SETLK, which older Pythons lack
FLOCK = "hhqqi4x"  # struct flock: type, whence, start, length, process


def create_file(total: int, parts: Sequence[tuple[int, int]]) -> int:
    """A file of `total` bytes, of which these parts (offset, bytes) are backed by memory now.

    Filling first turns "out of memory" into an error here instead of a signal in a client later, and
    spares the clients the first-touch faults (up to a second at 45 MB).
    """
    if not sys.platform.startswith("linux") or sys.byteorder != "little":
        raise UserError("the shared-memory transport needs Linux on a little-endian machine")
    filled, free = sum(size for _, size in parts), _available_bytes()
    if filled > free:
        raise UserError(
            f"models need {filled / 2**30:.1f} GiB of shared memory, {free / 2**30:.1f} GiB are free"
        )
    fd = os.memfd_create("swiftfl", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, total)
        for offset, size in parts:
            os.posix_fallocate(fd, offset, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    except OSError as error:
        os.close(fd)
        raise UserError(f"no shared memory for the clients' models: {error.strerror}") from error
    return fd


def _available_bytes() -> int:
    with open("/proc/meminfo", encoding="ascii") as file:  # noqa: PTH123
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return sys.maxsize


class SharedFile:
    """This process's own opening of the file."""

    def __init__(self, creator: int, fd: int, identity: tuple[int, int]) -> None:
        self.fd = _reopen(creator, fd, identity)
        self.maps: dict[tuple[int, int, bool], mmap.mmap] = {}

    def map(self, at: int, size: int, writable: bool, populate: bool = False) -> mmap.mmap:
        """Part of the file in this process's memory; what is not ours to write is mapped read-only."""
        key = (at, size, writable)
        if key not in self.maps:
            flags = mmap.MAP_SHARED | (getattr(mmap, "MAP_POPULATE", 0) if populate else 0)
            prot = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
            self.maps[key] = mmap.mmap(self.fd, size, flags=flags, prot=prot, offset=at)
        return self.maps[key]

    def vectors(
        self,
        at: int,
        count: int,
        stride: int,
        size: int,
        dtype: str,
        writable: bool,
        populate: bool,
    ) -> list[Vector]:
        mapped = self.map(at, count * stride, writable, populate)
        return [np.frombuffer(mapped, dtype, size, offset=j * stride) for j in range(count)]

    def close(self) -> None:
        """Give everything back. A mapping that somebody still looks at goes when they have gone."""
        for mapped in self.maps.values():
            with contextlib.suppress(BufferError):
                mapped.close()
        self.maps.clear()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _reopen(creator: int, fd: int, identity: tuple[int, int]) -> int:
    """Open the file anew: through our own inherited descriptor, or through its creator's."""
    for path in (f"/proc/self/fd/{fd}", f"/proc/{creator}/fd/{fd}"):
        try:
            found = os.stat(path)  # noqa: PTH116
            if (found.st_dev, found.st_ino) == identity:
                return os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
    raise UserError("the run's shared memory is gone: the process that made it has ended")


class ByteLock:
    """A lock on one byte of the file, taken without waiting; the kernel frees it if its holder dies."""

    def __init__(self, fd: int, at: int) -> None:
        self.fd = fd
        self._exclusive = struct.pack(FLOCK, fcntl.F_WRLCK, 0, at, 1, 0)
        self._shared = struct.pack(FLOCK, fcntl.F_RDLCK, 0, at, 1, 0)
        self._none = struct.pack(FLOCK, fcntl.F_UNLCK, 0, at, 1, 0)

    def exclusive(self) -> bool:
        return self._take(self._exclusive)

    def shared(self) -> bool:
        return self._take(self._shared)

    def _take(self, request: bytes) -> bool:
        try:
            fcntl.fcntl(self.fd, OFD_SETLK, request)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def release(self) -> None:
        fcntl.fcntl(self.fd, OFD_SETLK, self._none)
