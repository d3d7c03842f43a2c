"""Who reads which slot of a publisher, so that it never writes where somebody reads.

Two ways, and neither can be spoilt by a death. `HeldByWords`: each reader has a word of its own for each
publisher, in which it says which place it reads. Nothing enters the kernel; a reader that dies or is
stopped in mid-read keeps one slot, for which the publisher has one to spare. That needs one certainty of
the processor: that the reader's word is visible before it looks again at what is newest, and that the
publisher's newest word is visible before it looks at who reads. `Words.fence` gives it on x86.
`HeldByLocks`, everywhere else: a lock of the kernel per slot, which the kernel frees with its holder.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Protocol

from swiftfl.transports.shared_memory.file import ByteLock
from swiftfl.transports.shared_memory.words import Words

FENCES_WORK = platform.machine() in ("x86_64", "AMD64", "i686")


class Holds(Protocol):
    """One process's view of who reads a publisher's places; places count from 1, 0 is never written."""

    def take(self, place: int) -> bool:
        """Hold a place for reading; False if it is being written."""

    def let_go(self, place: int) -> None:
        """It has been read."""

    def free(self, newest: int) -> int | None:
        """For the publisher: a place that is neither the newest nor held."""

    def written(self, place: int) -> None:
        """The publisher has written it, and will say that it is the newest."""


class HeldByWords:
    """`mine` is this process's word, `readers` are those of all readers.

    The publisher itself has none (None): it does not write while it reads.
    """

    def __init__(self, words: Words, count: int, mine: int | None, readers: Sequence[int]) -> None:
        self._values, self._fence = words.values, words.fence
        self._count, self._readers = count, tuple(readers)
        self._mine = mine
        if mine is not None:
            self._values[mine] = 0  # what an earlier incarnation was reading

    def take(self, place: int) -> bool:
        if self._mine is not None:
            self._values[self._mine] = place + 1
            self._fence()
        return True

    def let_go(self, place: int) -> None:
        if self._mine is not None:
            self._values[self._mine] = 0

    def free(self, newest: int) -> int | None:
        self._fence()
        values = self._values
        held = [values[reader] - 1 for reader in self._readers]
        for place in range(1, self._count):
            if place != newest and place not in held:
                return place
        return None

    def written(self, place: int) -> None:
        """Processors of this kind show stores in their order: the model first, then the newest word."""


class HeldByLocks:
    """`locks[place]` is taken shared to read and exclusively to write."""

    def __init__(self, locks: Sequence[ByteLock]) -> None:
        self._locks = locks

    def take(self, place: int) -> bool:
        return self._locks[place].shared()

    def let_go(self, place: int) -> None:
        self._locks[place].release()

    def free(self, newest: int) -> int | None:
        for place in range(1, len(self._locks)):
            if place != newest and self._locks[place].exclusive():
                return place
        return None

    def written(self, place: int) -> None:
        """Before the newest word says so: a writer stopped in between would starve its readers."""
        self._locks[place].release()
