"""What a client publishes, said once for live runs and their replay."""

from __future__ import annotations

from swiftfl.client import Client, State
from swiftfl.engines.setup import Setup
from swiftfl.vector import Vector
from swiftfl.verbs import Publish


def first_published(setup: Setup, me: Client, state: State) -> tuple[Vector, bool]:
    """What a client that starts shows its neighbours: what its first step publishes first, or its model.

    And whether the step begins by publishing. A step is a function of its state: up to its first verb it can
    be run without any effect. One that has taken all its steps takes none: its last model is what stays.
    """
    if state.c > setup.steps_of(me.index):
        return state.x, False
    step = setup.algorithm.step(me, state)
    verb = next(step)
    step.close()
    return (verb.x, True) if isinstance(verb, Publish) else (state.x, False)


def sent_already(last: tuple[int, Vector] | None, c: int, x: Vector) -> bool:
    """Whether x was published under the same version before; under one version goes one model."""
    if last is None or last[0] != c:
        return False
    return last[1] is x or bool((last[1] == x).all())
