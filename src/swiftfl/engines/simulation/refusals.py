"""What is said to whoever wrote an algorithm whose step cannot go on: one line, with the algorithm's name."""

from __future__ import annotations

from swiftfl.algorithm import Algorithm
from swiftfl.client import State
from swiftfl.errors import UserError
from swiftfl.verbs import Exchange, Publish, Scatter, Verb

Shape = tuple[int, ...]


def wrong_end(algorithm: Algorithm[Verb], client: int, end: object, shape: Shape) -> UserError:
    """A step ended with something that is no state, or no state of this run."""
    if isinstance(end, State):
        told = f"a State with {_told(end.x)}: its model must be like s.x, a vector of shape {shape}"
    else:
        found = "nothing" if end is None else f"something of type {type(end).__name__}"
        told = f"{found}: it must end with `return State(x, s.c + 1, memory)`"
    return UserError(
        f"client {client}: the step of the algorithm {algorithm.name} returned {told} (docs/verbs.md)"
    )


def wrong_message(
    algorithm: Algorithm[Verb], client: int, verb: Publish | Scatter | Exchange, shape: Shape
) -> UserError:
    """A step gives others what no mailbox of this run can hold."""
    return UserError(
        f"client {client}: the step of the algorithm {algorithm.name} yields {type(verb).__name__} with "
        f"{_told(verb.x)}: what it sends must be like its model (or its first_message, if it has one), "
        f"a vector of shape {shape} (docs/verbs.md)"
    )


def refuse_writing(algorithm: Algorithm[Verb], error: ValueError) -> None:
    """Refuse a step that wrote into a vector which others use, too; other errors are left to the caller."""
    if "read-only" in str(error):
        raise UserError(
            f"the step of the algorithm {algorithm.name} writes into a vector that others use ({error}): "
            "it must make a new one, `x = x + move` instead of `x += move` (docs/verbs.md)"
        ) from error


def _told(x: object) -> str:
    shape = getattr(x, "shape", None)
    return f"something of type {type(x).__name__}" if shape is None else f"a vector of shape {tuple(shape)}"
