"""What an algorithm is: a name and a step, written once, as one client lives it.

`step` is a generator function from `State` to `State` that yields verbs. It does no I/O, reads no
clock and holds no lock; the engine owns the loop, the order, the time and the record.
`Algorithm[WaitFree]` is the type of algorithms that never wait.

An algorithm whose clients need not agree on a round says so with `in_rounds = False`: its clients
take new weights at their next step. All others take them at a round that nobody has begun yet.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol, TypeVar

from swiftfl.client import Client, State
from swiftfl.verbs import Verb, WaitFree

V = TypeVar("V", bound=Verb, covariant=True)


class Algorithm(Protocol[V]):
    @property
    def name(self) -> str:
        """The name that tables and run folders use."""

    def step(self, me: Client, s: State) -> Generator[V, object, State]:
        """One local step of client `me` from state `s`."""


WaitFreeAlgorithm = Algorithm[WaitFree]
