"""A barrier over everybody: each client says which round it has come to, and waits for the others.

A client that has come to a later round has passed the earlier ones, so one word per client is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from swiftfl.transports.shared_memory import layout as at
from swiftfl.transports.shared_memory.words import Words


class SharedBarrier:
    """Client i's part."""

    def __init__(self, i: int, words: Words) -> None:
        self.i, self.words = i, words

    def wait(self, round: int) -> None:
        words = self.words
        words.set(words.layout.word(self.i, at.REACHED), round + 1)
        wait_for_all(words, range(words.layout.n), lambda k: words.get(k, at.REACHED) > round, round)


def wait_for_all(words: Words, clients: Iterable[int], done: Callable[[int], bool], round: int) -> None:
    """Until each of these has done its part or will not do it.

    Everybody sleeps on one word; whoever comes last, and so need not sleep, changes it.
    """
    open_, slept = list(clients), False
    while True:
        seen = words.values[at.EVENTS]
        words.fence()
        while open_ and (done(open_[-1]) or not words.takes_part(open_[-1], round)):
            open_.pop()
        if not open_:
            break
        words.wait(at.EVENTS, seen)
        slept = True
    if not slept:
        words.set(at.EVENTS, words.values[at.EVENTS] + 1)
