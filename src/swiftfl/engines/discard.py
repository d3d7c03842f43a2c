"""A step whose numbers are not finite is discarded: the same way in every engine and in replay.

The client keeps its model and its memory, and its counter goes on; so published models stay finite, and
the client recovers through its neighbours.
"""

from __future__ import annotations

import numpy as np

from swiftfl.client import State
from swiftfl.vector import Statistics, Vector, advance, finite
from swiftfl.verbs import Add, AllReduce


def kept(start: State, end: State, move_left_out: bool = False) -> tuple[State, bool]:
    """The state that a client goes on from after a step, and whether the step was discarded.

    If the model is not finite, the client goes on from the start of the step. If only the memory is not,
    or a move was left out of the client's cell (`moved`), the model is the new one and the memory the old.
    """
    if end.finite and not move_left_out:
        return end, False
    if not finite(end.x):
        return State(start.x, start.c + 1, start.memory), True
    if move_left_out or not all(map(finite, end.memory.values())):
        return State(end.x, start.c + 1, start.memory), True
    return end, False


def moved(cell: Vector, move: Vector, statistics: Statistics | None) -> Vector:
    """The cell after `Add`; the cell itself if the result is not finite: the move is left out."""
    after = advance(cell, move, statistics)
    return after if finite(after) else cell


def movable(verb: Add) -> bool:
    """Whether a move can be added to a cell that others may write meanwhile: what it adds is finite."""
    return finite(verb.move) and (verb.statistics is None or finite(verb.statistics.values))


def contribution(verb: AllReduce) -> tuple[Vector, float]:
    """What a client gives to a mean of all, and its weight.

    A value that is not finite has no weight, as if its client were not there. Its client gets the mean of
    the others, so that all have the same; where nobody has a finite value, the mean is not finite.
    """
    if finite(verb.value):
        return verb.value, verb.weight
    return np.zeros_like(verb.value), 0.0


def discard_message(client: int, step: int) -> str:
    return f"client {client}: step {step} gave numbers that are not finite; the step was left out"
