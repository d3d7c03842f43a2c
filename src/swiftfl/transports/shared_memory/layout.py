"""Where everything lies in the shared file: words first, then x0, then each client's vectors.

All of it is computed from the topology and the model's size, so that every process finds everything
without being told. Vectors start at page boundaries, because each client maps only what it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from swiftfl.errors import UserError
from swiftfl.transports.base import KINDS

PAGE = 4096
WORD = 8
OBSERVERS = 1
"""Processes besides the neighbours that may read a client's newest model: the one that evaluates."""

# One client's words. Each has one writer at a time: the client itself, the supervisor, or (CELL and
# UNLOCKS, ANSWERS) whoever holds the cell's lock.
NEWEST, FINISHED, GONE, FROM_ROUND = range(4)
OFFERED, OFFER_TAGS = 4, 5  # two tags: the rounds of the two offers that are kept, plus one
REDUCED, GIVEN_TAGS, WEIGHTS = 7, 8, 10  # two tags and two weights
CELL, UNLOCKS = 12, 13
OBSERVED = 14  # which of this client's places the observer reads, plus one
ANSWERS = 15  # how often others have averaged with its cell
REACHED = 16  # the round that it has come to, plus one
NEIGHBOURS = 17  # these words per neighbour, which only the client itself writes:
TAKEN, HOLDS = 0, 1  # the last round that was taken from it, and which of its places is being read, plus one
TOLD = 2  # small messages to it, one per kind, each with its sequence number, epoch and two numbers
TOLD_WORDS = 4
PER_NEIGHBOUR = TOLD + KINDS * TOLD_WORDS

# Words of everybody.
STOP, EVENTS, SHARED_WORDS = 0, 1, 16


@dataclass(frozen=True)
class MemoryLayout:
    """Offsets of the words and vectors of n clients; `neighbours[i]` are all that i may ever have."""

    neighbours: tuple[tuple[int, ...], ...]
    size: int
    itemsize: int

    def __post_init__(self) -> None:
        if self.size < 1 or not self.neighbours:
            raise UserError(f"{len(self.neighbours)} clients with models of {self.size} numbers")
        check_neighbours(self.neighbours)

    @property
    def n(self) -> int:
        return len(self.neighbours)

    @cached_property
    def stride(self) -> int:
        """Bytes from one vector to the next."""
        return -(-self.size * self.itemsize // PAGE) * PAGE

    def slots(self, i: int) -> int:
        """Every reader may hold one slot, one is the newest, and one is free to write in."""
        return len(self.neighbours[i]) + 2 + OBSERVERS

    # --- words -----------------------------------------------------------------------------------

    @cached_property
    def _first_words(self) -> list[int]:
        firsts = [SHARED_WORDS]
        for i in range(self.n):
            words = self._times_word(i) + 1 + self.slots(i)
            firsts.append(firsts[-1] + -(-words // 8) * 8)  # no shared cache lines
        return firsts

    def word(self, i: int, name: int) -> int:
        return self._first_words[i] + name

    def taken(self, reader: int, publisher: int) -> int:
        """The reader's word of the last round that it took from the publisher."""
        return self._of_neighbour(reader, publisher) + TAKEN

    def holds(self, reader: int | None, publisher: int) -> int:
        """The reader's (None: the observer's) word of the publisher's place that it reads."""
        if reader is None:
            return self.word(publisher, OBSERVED)
        return self._of_neighbour(reader, publisher) + HOLDS

    def told(self, sender: int, receiver: int, kind: int) -> int:
        """The first of the sender's words of a small message to the receiver."""
        return self._of_neighbour(sender, receiver) + TOLD + kind * TOLD_WORDS

    def _of_neighbour(self, i: int, k: int) -> int:
        return self.word(i, NEIGHBOURS + PER_NEIGHBOUR * self.neighbours[i].index(k))

    def times(self, i: int) -> int:
        """The first of the words that say when each of a client's places was written; place 0 never is."""
        return self.word(i, self._times_word(i))

    def _times_word(self, i: int) -> int:
        return NEIGHBOURS + PER_NEIGHBOUR * len(self.neighbours[i])

    def words_of(self, i: int) -> range:
        return range(self._first_words[i], self._first_words[i + 1])

    @cached_property
    def words_bytes(self) -> int:
        return -(-self._first_words[-1] * WORD // PAGE) * PAGE

    # --- vectors: x0, then per client slots, offers, gifts to a reduction and cells; then the sum ---

    @property
    def x0(self) -> int:
        return self.words_bytes

    @cached_property
    def _first_vectors(self) -> list[int]:
        firsts = [self.x0 + self.stride]
        for i in range(self.n):
            firsts.append(firsts[-1] + (self.slots(i) + 6) * self.stride)
        return firsts

    def slots_at(self, i: int) -> int:
        return self._first_vectors[i]

    def offers_at(self, i: int) -> int:
        return self._first_vectors[i] + self.slots(i) * self.stride

    def given_at(self, i: int) -> int:
        return self.offers_at(i) + 2 * self.stride

    def cells_at(self, i: int) -> int:
        return self.offers_at(i) + 4 * self.stride

    @property
    def sum_at(self) -> int:
        return self._first_vectors[-1]

    @property
    def total_bytes(self) -> int:
        return self.sum_at + self.stride


def check_neighbours(neighbours: Sequence[Sequence[int]]) -> None:
    """Neighbourhood is symmetric, without loops and within range."""
    sets = [set(those) for those in neighbours]
    for i, those in enumerate(sets):
        if len(those) != len(neighbours[i]):
            raise UserError(f"client {i} has a neighbour twice")
        for k in those:
            if not 0 <= k < len(sets) or k == i or i not in sets[k]:
                raise UserError(f"client {i} cannot have neighbour {k}: not another client, or one-sided")
