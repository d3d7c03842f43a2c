"""Newest models without waiting: each publisher writes where nobody reads, then says where that is.

A publisher owns one slot per reader and two more, so one is always free that is neither the newest
nor being read. It locks such a slot, copies ONCE, unlocks, and only then stores the word
`version * places + slot` (a writer stopped between the two would otherwise starve its readers). A
reader reads the word, locks that slot (shared), and reads the word again: unchanged means that the
slot was the newest while it was locked, so nobody writes in it until it is unlocked.

The word is 0 at first, and place 0 is the common x0: version 0 of every client. Nobody writes there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from swiftfl.transports.shm import layout as at
from swiftfl.transports.shm.board import Board
from swiftfl.transports.shm.file import ByteLock
from swiftfl.vector import Vector

T = TypeVar("T")
TRIES = 64
"""Each failure means that a newer model was published meanwhile; a few in a row are unheard of."""


class Slots:
    """One publisher's slots, seen by one process; `places[0]` is x0."""

    def __init__(self, owner: int, places: list[Vector], locks: list[ByteLock], board: Board) -> None:
        self.places = places
        self.locks = locks
        self.words = board.words
        self.word = board.layout.word(owner, at.NEWEST)
        self.refused = 0

    def write(self, x: Vector, version: int) -> bool:
        """Make x the newest; False (and nothing has changed) if every slot is taken."""
        count = len(self.places)
        newest = self.words[self.word] % count
        for place in range(1, count):
            if place != newest and self.locks[place].exclusive():
                try:
                    self.places[place][:] = x
                finally:
                    self.locks[place].release()
                self.words[self.word] = version * count + place
                return True
        self.refused += 1
        return False

    def read(self, use: Callable[[Vector, int], T]) -> T | None:
        """Use the newest model in place; None if the publisher was quicker, `TRIES` times in a row."""
        words, count = self.words, len(self.places)
        for _ in range(TRIES):
            word = words[self.word]
            version, place = divmod(word, count)
            lock = self.locks[place]
            if not lock.shared():
                continue
            try:
                if words[self.word] == word:
                    return use(self.places[place], version)
            finally:
                lock.release()
        self.refused += 1
        return None
