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

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from swiftfl.sample import Batch, Slope
from swiftfl.vector import Statistics, Vector, Weights

Inbox: TypeAlias = Mapping[int, Vector]
"""The newest model of each neighbour that has one, by the neighbour's index."""


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

    def __iter__(self) -> Generator[Fetch, Inbox, Inbox]:
        return (yield self)


@dataclass(slots=True)
class Mix:
    """The weighted average of my model and an inbox (`vector.mix`)."""

    w: Weights
    x: Vector
    inbox: Inbox

    def __iter__(self) -> Generator[Mix, Vector, Vector]:
        return (yield self)


# --- waiting -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Exchange:
    """Give my model of this round to the neighbours and wait for theirs of the same round."""

    x: Vector
    neighbours: Sequence[int]
    round: int

    def __iter__(self) -> Generator[Exchange, Inbox, Inbox]:
        return (yield self)


@dataclass(slots=True)
class Load:
    """My model cell as it is now: others may have averaged into it since I last looked."""

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
    """Add this move to my cell, atomically; the reply is the cell afterwards."""

    move: Vector
    statistics: Statistics | None = None

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


WaitFree: TypeAlias = Publish | Gradient | Fetch | Mix
Waiting: TypeAlias = Exchange | Load | AverageWith | Overlapped | Add | AllReduce
Verb: TypeAlias = WaitFree | Waiting
