"""A step whose numbers are not finite is discarded: the same way in every engine and in replay.

The client keeps its model and its memory, and its counter goes on; so published models stay finite, and
the client recovers through its neighbours.
"""

from __future__ import annotations

from swiftfl.client import State
from swiftfl.vector import Statistics, Vector, advance, finite


def kept(start: State, end: State, move_left_out: bool = False) -> tuple[State, bool]:
    """The state that a client goes on from after a step, and whether the step was discarded.

    If the model is not finite, the client goes on from the start of the step. If only the memory is not,
    or a move was left out of the client's cell (`moved`), the model is the new one and the memory the old.
    """
    if not finite(end.x):
        return State(start.x, start.c + 1, start.memory), True
    if move_left_out or not all(map(finite, end.memory.values())):
        return State(end.x, start.c + 1, start.memory), True
    return end, False


def moved(cell: Vector, move: Vector, statistics: Statistics | None) -> Vector:
    """The cell after `Add`; the cell itself if the result is not finite: the move is left out."""
    after = advance(cell, move, statistics)
    return after if finite(after) else cell


def discard_message(client: int, step: int) -> str:
    return f"client {client}: step {step} gave numbers that are not finite; the step was left out"
