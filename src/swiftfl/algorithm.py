"""What an algorithm is: a name, an update rule and a step, written once, from the view of one client.

`step` is a generator function from `State` to `State` that yields verbs. It does no I/O, reads no
clock and holds no lock; the engine owns the loop, the order, the time and the record.
`Algorithm[WaitFree]` is the type of algorithms that never wait.

An algorithm says whether its clients meet in rounds. If they do (`in_rounds = True`), new weights hold
from a round that nobody has begun yet, and all stop and save before the same round. If not, each client
does so at its next step.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar

from swiftfl.client import Client, State
from swiftfl.rules import UpdateRule
from swiftfl.vector import Vector
from swiftfl.verbs import Verb, WaitFree

V = TypeVar("V", bound=Verb, covariant=True)
Edges: TypeAlias = Literal["all", "first", "none"]
"""Along which edges an algorithm averages: all that are up, only those of the start, or none (over all)."""


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

W = TypeVar("W", bound=Verb)


@dataclass(frozen=True)
class Around(Generic[W]):
    """What an algorithm around an algorithm has of the inner one; its `step` looks at the verbs that pass."""

    algorithm: Algorithm[W]

    @property
    def name(self) -> str:
        return self.algorithm.name

    @property
    def in_rounds(self) -> bool:
        return self.algorithm.in_rounds

    @property
    def rule(self) -> UpdateRule:
        return self.algorithm.rule


FirstMessage: TypeAlias = Callable[[Vector], Vector]
"""From x0 to what a mailbox holds at first, of algorithms that do not publish their models."""


def _unwrapped(algorithm: object) -> object:
    """What stands inside of algorithms around an algorithm (`moments`, `robust`)."""
    while isinstance(algorithm, Around):
        algorithm = algorithm.algorithm
    return algorithm


def why_only_simulated(algorithm: Algorithm[Verb]) -> str | None:
    """What an algorithm does that live engines do not serve: its attribute `only_simulated`."""
    why: str | None = getattr(_unwrapped(algorithm), "only_simulated", None)
    return why


def averages_in_pairs(algorithm: Algorithm[Verb]) -> bool:
    """Whether a client waits until a neighbour has averaged cells with it: its attribute `in_pairs`.

    Engines know who is lost, and let nobody wait for those; nodes of a federation have nobody who knows.
    """
    pairs: bool = getattr(_unwrapped(algorithm), "in_pairs", False)
    return pairs


def relies_on_the_start(algorithm: Algorithm[Verb]) -> bool:
    """Whether an algorithm cannot go on when clients or links come or go: its attribute `fixed_network`."""
    fixed: bool = getattr(_unwrapped(algorithm), "fixed_network", False)
    return fixed


def warning_of_a_loss(algorithm: Algorithm[Verb]) -> str | None:
    """What an algorithm that suffers from the loss of a live client says of it, if it does."""
    warning: str | None = getattr(_unwrapped(algorithm), "warning_of_a_loss", None)
    return warning


ClientCheck: TypeAlias = Callable[[Client], None]


def client_check_of(algorithm: Algorithm[Verb]) -> ClientCheck | None:
    """An algorithm that cannot run with any weights has a method `check(client)`, which says why not."""
    while not hasattr(algorithm, "check") and isinstance(algorithm, Around):
        algorithm = algorithm.algorithm  # what is around it may have a check, too, which asks the inner one
    check: ClientCheck | None = getattr(algorithm, "check", None)
    return check


Resumed: TypeAlias = Callable[[State], State]


def resumed_of(algorithm: Algorithm[Verb]) -> Resumed | None:
    """An algorithm whose clients cannot simply go on from live saves has a method `resumed(state)`.

    What was under way when a live run stopped is lost, and who was killed goes on from an older step. The
    method gives the state from which a client goes on then, all of them together.
    """
    resumed: Resumed | None = getattr(_unwrapped(algorithm), "resumed", None)
    return resumed


def first_message_of(algorithm: Algorithm[Verb]) -> FirstMessage | None:
    """An algorithm that sends something else than its model has a method `first_message(x0)`.

    It gives what a neighbour finds before anything was sent; all its messages have that length.
    """
    first: FirstMessage | None = getattr(_unwrapped(algorithm), "first_message", None)
    return first
