"""A weighted mean over everybody: each client sums one slice of all values, then copies the others'.

Whose values count is the same for all, though clients may die at any moment: a value counts if it
was given, and it is looked for after its owner is known to be gone. If somebody dies after giving
its value, everybody else computes its slice for themselves. Two values are kept per client, because
a client may be one reduction ahead of the slowest, never two.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from swiftfl.transports.shm import layout as at
from swiftfl.transports.shm.board import Board
from swiftfl.vector import Vector


class Reduction:
    """Client i's part in the reductions."""

    def __init__(self, i: int, board: Board, given: Callable[[int], list[Vector]], total: Vector) -> None:
        self.i = i
        self.board = board
        self.given = given
        self.total = total

    def mean(self, value: Vector, weight: float, round: int) -> Vector:
        self._give(value, weight, round)
        self._wait(lambda: self._unknown(round) is None)
        members = self._members(round)
        weights = sum(self._weight(k, place) for k, place in members.items())
        edges = np.linspace(0, self.total.size, len(members) + 1).astype(int)
        slices = {k: slice(*edges[j : j + 2]) for j, k in enumerate(members)}
        self.total[slices[self.i]] = self._sum(members, weights, slices[self.i])
        self.board.set(self.board.layout.word(self.i, at.REDUCED), round + 1)
        self._wait(lambda: not self._unreduced(members, round, living=True))
        out: Vector = self.total.copy()
        for k in self._unreduced(members, round, living=False):
            out[slices[k]] = self._sum(members, weights, slices[k])
        return out

    def _give(self, value: Vector, weight: float, round: int) -> None:
        board, tags = self.board, self.board.layout.word(self.i, at.GIVEN_TAGS)
        older = int(board.words[tags + 1] < board.words[tags])
        self.given(self.i)[older][:] = value
        board.numbers[board.layout.word(self.i, at.WEIGHTS) + older] = weight
        board.set(tags + older, round + 1)

    def _place(self, k: int, round: int) -> int | None:
        """Where client k's value of this round is, if it has been given."""
        tags = self.board.layout.word(k, at.GIVEN_TAGS)
        return next((place for place in (0, 1) if self.board.words[tags + place] == round + 1), None)

    def _unknown(self, round: int) -> int | None:
        """A client of which it is open whether it gives a value."""
        for k in range(self.board.layout.n):
            if self.board.takes_part(k, round) and self._place(k, round) is None:
                return k
        return None

    def _members(self, round: int) -> dict[int, int]:
        places = {k: self._place(k, round) for k in range(self.board.layout.n)}
        return {k: place for k, place in places.items() if place is not None}

    def _unreduced(self, members: dict[int, int], round: int, living: bool) -> list[int]:
        board = self.board
        asked = [k for k in members if not living or board.takes_part(k, round)]
        return [k for k in asked if board.get(k, at.REDUCED) <= round]

    def _weight(self, k: int, place: int) -> float:
        return self.board.numbers[self.board.layout.word(k, at.WEIGHTS) + place]

    def _sum(self, members: dict[int, int], weights: float, part: slice) -> Vector:
        """The mean of one slice, summed in the clients' order."""
        total = np.zeros_like(self.total[part])
        for k, place in members.items():
            total += self._weight(k, place) * self.given(k)[place][part]
        return (total / weights).astype(total.dtype, copy=False)

    def _wait(self, complete: Callable[[], bool]) -> None:
        """Everybody sleeps on one bell, and whoever finds the round complete rings it."""
        board = self.board
        seen = board.words[at.BELL]
        board.fence()
        if not complete():
            while not complete():
                board.wait(at.BELL, seen)
                seen = board.words[at.BELL]
                board.fence()
            return
        board.set(at.BELL, board.words[at.BELL] + 1)
