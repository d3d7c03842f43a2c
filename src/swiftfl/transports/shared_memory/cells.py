"""Model cells for AD-PSGD: one per client, which its neighbours average into.

A cell has two copies and a counter whose lowest bit tells the valid one: a writer fills the other and
counts on, so that one that dies in mid-write leaves the cell as it was, and the kernel frees its lock.
Pairs are locked in the order of their indices. Reading takes no lock: the counter did not move, so
the copy was whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from swiftfl.kernels import copy
from swiftfl.transports.base import Lost
from swiftfl.transports.shared_memory import layout as at
from swiftfl.transports.shared_memory.file import ByteLock
from swiftfl.transports.shared_memory.words import Words
from swiftfl.vector import Statistics, Vector, advance, copied, halfway

LOCK_PATIENCE = 0.01
Pairs: TypeAlias = Callable[[int], list[Vector]]
Locks: TypeAlias = Callable[[int], ByteLock]


class SharedCells:
    """The cells of client i and its neighbours."""

    def __init__(self, i: int, words: Words, x0: Vector, cells: Pairs, lock: Locks) -> None:
        self.i = i
        self.words = words
        self.x0 = x0
        self.cells = cells
        self.lock = lock

    def copy(self, k: int) -> Vector:
        """Client k's cell; takes no lock. Whenever it has to try again, somebody else got on."""
        words, word = self.words, self.words.layout.word(k, at.CELL)
        while True:
            count = words.values[word]
            out = copied(self._valid(k))
            words.fence()
            if words.values[word] == count:
                return out

    def average(self, k: int) -> Vector:
        with self._locked(k, *sorted((self.i, k))):
            mean = halfway(self._valid(self.i), self._valid(k))
            for cell in (self.i, k):
                self._write(cell, mean)
            self.words.put(k, at.ANSWERS, self.words.get(k, at.ANSWERS) + 1)
        return mean

    def add(self, move: Vector, statistics: Statistics | None) -> Vector:
        with self._locked(None, self.i):
            out = advance(self._valid(self.i), move, statistics)
            self._write(self.i, out)
        return out

    def set(self, x: Vector) -> None:
        """Start this client's cell from x."""
        with self._locked(None, self.i):
            self._write(self.i, x)

    def _valid(self, k: int) -> Vector:
        count = self.words.get(k, at.CELL)
        return self.cells(k)[count & 1] if count else self.x0

    def _write(self, k: int, x: Vector) -> None:
        count = self.words.get(k, at.CELL)
        copy(self.cells(k)[(count + 1) & 1], x)
        self.words.fence()
        self.words.put(k, at.CELL, count + 1)

    @contextmanager
    def _locked(self, partner: int | None, *cells: int) -> Iterator[None]:
        held: list[int] = []
        try:
            for k in cells:
                self._acquire(k, partner)
                held.append(k)
            yield
        finally:
            for k in reversed(held):
                self._release(k)

    def _acquire(self, k: int, partner: int | None) -> None:
        word = self.words.layout.word(k, at.UNLOCKS)
        while True:
            seen = self.words.values[word]
            if partner is not None and self.words.get(partner, at.GONE):
                raise Lost(partner)
            if self.lock(k).exclusive():
                return
            self.words.wait(word, seen, LOCK_PATIENCE)

    def _release(self, k: int) -> None:
        """Count before unlocking: whoever then finds the lock still taken is asleep when it is woken."""
        word = self.words.layout.word(k, at.UNLOCKS)
        self.words.values[word] += 1
        self.lock(k).release()
        self.words.wake(word)
