"""A weighted mean over everybody: each client sums one slice of all values, then copies the others'.

Whose values count is the same for all, though clients may die at any moment: a value counts if it
was given, and that is looked up when its owner has given it or can no longer do so. If somebody dies
after giving its value, everybody else computes its slice for themselves. Two values are kept per
client, because a client may be one reduction ahead of the slowest, never two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from swiftfl.kernels import copy
from swiftfl.transports.base import Mean
from swiftfl.transports.shared_memory import layout as at
from swiftfl.transports.shared_memory.barrier import wait_for_all
from swiftfl.transports.shared_memory.words import Words
from swiftfl.vector import Vector, copied, weighted_mean


class SharedReduction:
    """Client i's part in the reductions."""

    def __init__(self, i: int, words: Words, given: Callable[[int], list[Vector]], total: Vector) -> None:
        self.i = i
        self.words = words
        self.given = given
        self.total = total

    def mean(self, value: Vector, weight: float, round: int) -> Mean:
        self._give(value, weight, round)
        everybody = range(self.words.layout.n)
        wait_for_all(self.words, everybody, lambda k: self._place(k, round) is not None, round)
        members = self._members(round)
        slices = self._slices(members)
        self._sum(members, slices[self.i], self.total)
        self.words.set(self.words.layout.word(self.i, at.REDUCED), round + 1)
        wait_for_all(self.words, members, lambda k: self._has_reduced(k, round), round)
        out = copied(self.total)
        for k in members:
            if not self._has_reduced(k, round):  # it gave its value and died
                self._sum(members, slices[k], out)
        return Mean(out, len(members))

    def _give(self, value: Vector, weight: float, round: int) -> None:
        words, tags = self.words, self.words.layout.word(self.i, at.GIVEN_TAGS)
        older = int(words.values[tags + 1] < words.values[tags])
        copy(self.given(self.i)[older], value)
        words.numbers[words.layout.word(self.i, at.WEIGHTS) + older] = weight
        words.set(tags + older, round + 1)

    def _place(self, k: int, round: int) -> int | None:
        """Where client k's value of this round is, if it has been given."""
        tags = self.words.layout.word(k, at.GIVEN_TAGS)
        return next((place for place in (0, 1) if self.words.values[tags + place] == round + 1), None)

    def _members(self, round: int) -> dict[int, int]:
        places = {k: self._place(k, round) for k in range(self.words.layout.n)}
        return {k: place for k, place in places.items() if place is not None}

    def _has_reduced(self, k: int, round: int) -> bool:
        return self.words.get(k, at.REDUCED) > round

    def _slices(self, members: Iterable[int]) -> dict[int, slice]:
        """Who sums which part."""
        order = list(members)
        size, count = self.total.size, len(order)
        return {k: slice(j * size // count, (j + 1) * size // count) for j, k in enumerate(order)}

    def _weight(self, k: int, place: int) -> float:
        return self.words.numbers[self.words.layout.word(k, at.WEIGHTS) + place]

    def _sum(self, members: dict[int, int], part: slice, out: Vector) -> None:
        """The mean of one slice, summed in the clients' order, into that slice."""
        given = [(self._weight(k, place), self.given(k)[place][part]) for k, place in members.items()]
        weighted_mean(given, out[part])
