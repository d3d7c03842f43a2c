"""The shared words: what clients and their supervisor tell each other, and how they sleep on it.

A word is an aligned 64-bit integer, which processors read and write whole. Whoever waits sleeps in
the kernel on the word that it waits for (a futex) and is woken by whoever changes it: no core is
burnt, and no lock is held that a dead process could keep. A sleep is bounded by `PATIENCE`, so that
a wake-up that is lost (its sender died between the change and the call) costs that and no more.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import threading
import time

from swiftfl.transports.base import Stopped
from swiftfl.transports.shared_memory import layout as at
from swiftfl.transports.shared_memory.layout import MemoryLayout
from swiftfl.transports.timespec import timespec

PATIENCE = 0.05
FUTEX_CALLS = {"x86_64": 202, "aarch64": 98, "riscv64": 98, "ppc64le": 221}
WAIT, WAKE, EVERYBODY = 0, 1, 2**31 - 1


class Words:
    """All shared words, mapped for reading and writing."""

    def __init__(self, layout: MemoryLayout, mapped: mmap.mmap) -> None:
        self.layout = layout
        self.values = memoryview(mapped).cast("q")
        self.numbers = memoryview(mapped).cast("d")
        self._anchor: ctypes.c_char | None = ctypes.c_char.from_buffer(mapped)
        self._base = ctypes.addressof(self._anchor)
        self._lock = threading.Lock()
        self.waited = 0.0  # seconds asleep, in all
        self._call = FUTEX_CALLS.get(platform.machine())
        self._libc = ctypes.CDLL(None)
        self._libc.syscall.argtypes = (
            ctypes.c_long, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p,
            ctypes.c_uint32,
        )  # fmt: skip

    def close(self) -> None:
        self.values.release()
        self.numbers.release()
        self._anchor = None

    # --- order and sleep -------------------------------------------------------------------------

    def fence(self) -> None:
        """Everything written before is visible before anything that is read or written after.

        Taking a lock is an instruction that the processor does not reorder across (x86).
        """
        with self._lock:
            pass

    def wait(self, word: int, seen: int, seconds: float = PATIENCE) -> None:
        """Sleep while the word is as it was seen, until it is woken, at most some time; then look again."""
        if self.values[at.STOP]:
            raise Stopped
        began = time.perf_counter()
        self._sleep(word, seen, seconds)
        self.waited += time.perf_counter() - began

    def _sleep(self, word: int, seen: int, seconds: float) -> None:
        if self._call is None:
            time.sleep(min(seconds, 0.0005))
        else:
            limit = timespec(seconds)
            address = self._base + word * at.WORD
            self._libc.syscall(self._call, address, WAIT, seen & 0xFFFFFFFF, ctypes.byref(limit), None, 0)

    def wake(self, word: int) -> None:
        """Wake everybody who sleeps on this word."""
        if self._call is not None:
            self._libc.syscall(self._call, self._base + word * at.WORD, WAKE, EVERYBODY, None, None, 0)

    def set(self, word: int, value: int) -> None:
        """Change a word and wake those who wait for that; what was written before is visible first."""
        self.fence()
        self.values[word] = value
        self.wake(word)

    def wake_waiters_for(self, i: int) -> None:
        """Let everybody who waits for client i look again."""
        for word in self.layout.words_of(i):
            self.wake(word)
        self.values[at.EVENTS] += 1
        self.wake(at.EVENTS)

    # --- who is there ----------------------------------------------------------------------------

    def get(self, i: int, name: int) -> int:
        return self.values[self.layout.word(i, name)]

    def put(self, i: int, name: int, value: int) -> None:
        self.values[self.layout.word(i, name)] = value

    def takes_part(self, i: int, round: int) -> bool:
        """Whether client i is to be waited for in a round: neither gone, finished, nor yet to join.

        Read this before looking for what the client left: after it has ended, that changes no more.
        """
        return not (self.get(i, at.GONE) or self.get(i, at.FINISHED)) and round >= self.get(i, at.FROM_ROUND)

    def stop(self) -> None:
        """Ask every client to stop; whoever waits is woken."""
        self.values[at.STOP] = 1
        for i in range(self.layout.n):
            self.wake_waiters_for(i)
