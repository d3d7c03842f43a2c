"""Verbs: what a client asks of its world.

A step of an algorithm is a generator that yields verbs and is sent the replies; `yield from verb`
gives the reply with its type. Engines interpret verbs; algorithms never see which engine it is.

Whether a verb can block is part of its type:

* `WaitFree` verbs finish in the client's own time, whatever the others do.
* `Waiting` verbs need another client, or a lock that another client may hold.

SWIFT's step is typed ``Generator[WaitFree, object, State]``: a waiting verb in it, even through a
helper, is a type error. Verbs are data, not closures, so that an engine may hold many of them back
and serve them together (all pending gradients in one batched call, all mixes in one product).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from swiftfl.mixing import MixRule
from swiftfl.sample import Batch, Slope
from swiftfl.vector import Statistics, Vector, Weights

Inbox: TypeAlias = Mapping[int, Vector]
"""The newest model of each neighbour that has one, by the neighbour's index."""


class Fetched(Inbox):
    """What `Fetch` replies with: an inbox that can tell how old its models are."""

    __slots__ = ()

    @property
    @abstractmethod
    def ages(self) -> Mapping[int, float]:
        """How long ago each model was published, in steps of its publisher; to be asked after the `Mix`.

        Whose age nobody can tell yet (x0, or the first model of a neighbour) is left out, and so are models
        that were not there to be averaged. In lockstep every age is 1.
        """


# --- wait-free ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Publish:
    """Give this model to the neighbours; whatever they had of mine before is superseded."""

    x: Vector
    to: Sequence[int]
    version: int

    def __iter__(self) -> Generator[Publish, None, None]:
        yield self


@dataclass(slots=True)
class Gradient:
    """The gradient of my loss at x on a batch."""

    x: Vector
    batch: Batch

    def __iter__(self) -> Generator[Gradient, Slope, Slope]:
        return (yield self)


@dataclass(slots=True)
class Fetch:
    """The newest models that these neighbours have sent, as they are now."""

    neighbours: Sequence[int]

    def __iter__(self) -> Generator[Fetch, Fetched, Fetched]:
        return (yield self)


@dataclass(slots=True)
class Mix:
    """The weighted average of my model and an inbox (`vector.mix`), or what a rule makes of them."""

    w: Weights
    x: Vector
    inbox: Inbox
    rule: MixRule | None = None

    def __iter__(self) -> Generator[Mix, Vector, Vector]:
        return (yield self)


@dataclass(slots=True)
class Scatter:
    """Give one fragment of my model, the numbers x[fragment::of], to these clients.

    What they had of this fragment of mine, and have not gathered yet, is superseded.
    """

    x: Vector
    fragment: int
    of: int
    to: Sequence[int]
    version: int

    def __iter__(self) -> Generator[Scatter, None, None]:
        yield self


@dataclass(slots=True)
class Gather:
    """The fragments that have arrived since I last asked: their sum and how many, number by number."""

    def __iter__(self) -> Generator[Gather, tuple[Vector, Vector], tuple[Vector, Vector]]:
        return (yield self)


# --- waiting -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Exchange:
    """Give my model of this round to the neighbours and wait for theirs of the same round.

    With `to`, it goes to these instead: along the directed edges of a graph the two need not be the same.
    With `packet`, it goes over links that may lose packets of so many numbers, and send none again: in the
    inbox, what is missing of a model is my own.
    """

    x: Vector
    neighbours: Sequence[int]
    round: int
    to: Sequence[int] | None = None
    packet: int | None = None

    @property
    def receivers(self) -> Sequence[int]:
        return self.neighbours if self.to is None else self.to

    def __iter__(self) -> Generator[Exchange, Inbox, Inbox]:
        return (yield self)


@dataclass(slots=True)
class Load:
    """My model cell as it is now, or that of its `owner`: others may have changed it since I last looked."""

    owner: int | None = None

    def __iter__(self) -> Generator[Load, Vector, Vector]:
        return (yield self)


@dataclass(slots=True)
class AverageWith:
    """Replace my cell and this neighbour's by their mean, atomically."""

    neighbour: int

    def __iter__(self) -> Generator[AverageWith, Vector, Vector]:
        return (yield self)


@dataclass(slots=True)
class Overlapped:
    """A gradient, and meanwhile an averaging of my cell; the reply is there when both are done."""

    gradient: Gradient
    averaging: AverageWith

    def __iter__(self) -> Generator[Overlapped, tuple[Slope, Vector], tuple[Slope, Vector]]:
        return (yield self)


@dataclass(slots=True)
class Add:
    """Add this move to my cell, or to that of its `owner`, atomically; the reply is the cell afterwards.

    Moves may be collected, and added up to the cell when there are so many `together`.
    """

    move: Vector
    statistics: Statistics | None = None
    owner: int | None = None
    together: int = 1

    def __iter__(self) -> Generator[Add, Vector, Vector]:
        return (yield self)


@dataclass(slots=True)
class AllReduce:
    """The weighted mean, over all clients, of the values that they give in this round."""

    value: Vector
    weight: float
    round: int
    by_server: bool = False

    def __iter__(self) -> Generator[AllReduce, Vector, Vector]:
        return (yield self)


WaitFree: TypeAlias = Publish | Gradient | Fetch | Mix | Scatter | Gather
Waiting: TypeAlias = Exchange | Load | AverageWith | Overlapped | Add | AllReduce
Verb: TypeAlias = WaitFree | Waiting
