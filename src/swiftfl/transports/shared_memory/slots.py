"""Newest models without waiting: each publisher writes where nobody reads, then says where that is.

A publisher owns one slot per reader and two more, so one is always free that is neither the newest
nor being read. It copies ONCE into such a slot and then stores the word `version * places + slot`. A
reader reads the word, *holds* that slot, and reads the word again: unchanged means that the slot was
the newest while it was held, so nobody writes in it until it is let go
(`transports.shared_memory.holds`).

The word is 0 at first, and place 0 is the common x0: version 0 of every client. Nobody writes there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from swiftfl.kernels import copy
from swiftfl.transports.shared_memory import layout as at
from swiftfl.transports.shared_memory.holds import Holds
from swiftfl.transports.shared_memory.words import Words
from swiftfl.vector import Vector

T = TypeVar("T")
TRIES = 64
"""Each failure means that a newer model was published meanwhile; a few in a row are unheard of."""


class Slots:
    """One publisher's slots, seen by one process; `places[0]` is x0."""

    def __init__(self, owner: int, places: list[Vector], holds: Holds, words: Words) -> None:
        self.places = places
        self.count = len(places)
        self.holds = holds
        self.values = words.values
        self.word = words.layout.word(owner, at.NEWEST)
        self._times, self._first_time = words.numbers, words.layout.times(owner)
        self.published = 0.0  # when what was read last was, by the machine's clock
        self.refused = 0

    def write(self, x: Vector, version: int) -> bool:
        """Make x the newest; False (and nothing has changed) if every slot is taken."""
        place = self.holds.free(self.values[self.word] % self.count)
        if place is None:
            self.refused += 1
            return False
        try:
            copy(self.places[place], x)
        finally:
            self.holds.written(place)
        self._times[self._first_time + place] = time.monotonic()
        self.values[self.word] = version * self.count + place
        return True

    def read(self, use: Callable[[Vector, int], T]) -> T | None:
        """Use the newest model in place; None if the publisher was quicker, `TRIES` times in a row."""
        values, at, holds = self.values, self.word, self.holds
        for _ in range(TRIES):
            word = values[at]
            version, place = divmod(word, self.count)
            if not holds.take(place):
                continue
            try:
                if values[at] == word:
                    self.published = self._times[self._first_time + place]
                    return use(self.places[place], version)
            finally:
                holds.let_go(place)
        self.refused += 1
        return None
