"""Synchronous rounds: offers that stay until their readers have taken them.

Each client keeps its last two offers. A third replaces the older one, and waits for those whom that
was for and who have not taken it yet. In D-SGD nobody ever does: whoever has offered round r + 1 has
taken what it needed of round r. With partners that change (MATCHA, gossip) a client may be ahead of
those it does not meet, and this is what bounds its lead. Nobody can wait in a circle: the client in
the lowest round waits for nobody who waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from swiftfl.kernels import copy
from swiftfl.transports.base import Finished, Lost
from swiftfl.transports.shared_memory import layout as at
from swiftfl.transports.shared_memory.words import Words
from swiftfl.vector import Vector

T = TypeVar("T")


class SharedRounds:
    """Client i's offers, and those of its neighbours."""

    def __init__(self, i: int, words: Words, offers: Callable[[int], list[Vector]]) -> None:
        self.i = i
        self.words = words
        self.offers = offers
        self.readers: list[tuple[int, tuple[int, ...]]] = [(0, ()), (0, ())]

    def offer(self, x: Vector, round: int, to: Sequence[int]) -> None:
        words, tags = self.words, self.words.layout.word(self.i, at.OFFER_TAGS)
        older = int(words.values[tags + 1] < words.values[tags])
        for k in self.readers[older][1]:
            self._wait_until_taken(k, self.readers[older][0])
        words.values[tags + older] = 0
        copy(self.offers(self.i)[older], x)
        self.readers[older] = (round, tuple(to))
        words.fence()
        words.values[tags + older] = round + 1
        words.set(words.layout.word(self.i, at.OFFERED), round + 1)

    def _wait_until_taken(self, k: int, round: int) -> None:
        word = self.words.layout.taken(k, self.i)
        while True:
            seen = self.words.values[word]
            if seen > round or not self.words.takes_part(k, round):
                return
            self.words.wait(word, seen)

    def collect(self, k: int, round: int, use: Callable[[Vector], T]) -> T:
        """The neighbour's model of the round, used in place."""
        words = self.words
        values, word = words.values, words.layout.word(k, at.OFFERED)
        tags = words.layout.word(k, at.OFFER_TAGS)
        while True:
            seen, there = values[word], words.takes_part(k, round)
            words.fence()
            for place in (0, 1):
                if values[tags + place] == round + 1:
                    return self._take(k, round, place, use)
            if not there and words.get(k, at.FINISHED):
                raise Finished(k)
            if not there or seen > round + 1:  # it has gone, or passed this round without me
                raise Lost(k)
            words.wait(word, seen)

    def _take(self, k: int, round: int, place: int, use: Callable[[Vector], T]) -> T:
        words = self.words
        result = use(self.offers(k)[place])
        if words.values[words.layout.word(k, at.OFFER_TAGS) + place] != round + 1:
            raise Lost(k)  # it was not for me, or its owner died and was started again
        words.set(words.layout.taken(self.i, k), round + 1)
        return result
