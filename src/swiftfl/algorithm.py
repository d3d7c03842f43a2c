"""What an algorithm is: a name, an update rule and a step, written once, from the view of one client.

`step` is a generator function from `State` to `State` that yields verbs. It does no I/O, reads no
clock and holds no lock; the engine owns the loop, the order, the time and the record.
`Algorithm[WaitFree]` is the type of algorithms that never wait.

An algorithm says whether its clients meet in rounds. If they do (`in_rounds = True`), new weights hold
from a round that nobody has begun yet, and all stop and save before the same round. If not, each client
does so at its next step.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol, TypeVar

from swiftfl.client import Client, State
from swiftfl.rules import UpdateRule
from swiftfl.verbs import Verb, WaitFree

V = TypeVar("V", bound=Verb, covariant=True)


class Algorithm(Protocol[V]):
    @property
    def name(self) -> str:
        """The name that tables and run folders use."""

    @property
    def in_rounds(self) -> bool:
        """Whether clients exchange models of the same round, and so have to agree on it."""

    @property
    def rule(self) -> UpdateRule:
        """How a gradient moves the model; a client starts with the rule's initial memory."""

    def step(self, me: Client, s: State) -> Generator[V, object, State]:
        """One local step of client `me` from state `s`."""


WaitFreeAlgorithm = Algorithm[WaitFree]
