"""Pausing a simulated run anywhere, and going on from there as if nothing had happened.

At any moment every client is in the middle of a step. A generator cannot be saved, but a step is a
pure function of its start state and of the replies that it got: so a checkpoint holds, per client,
the state at the start of the step and the replies since, and resuming re-runs the step on them,
without their effects. With it go the states of the world's components: events, clocks, models in
mailboxes and on their way, offers of synchronous rounds, gradients that were computed but not yet
delivered. Random draws need nothing: they are keyed.

A checkpoint is a tree of plain values and a pool of arrays (`swiftfl.engines.saved`), written as JSON and
safetensors.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from swiftfl.engines.saved import Pool, Tree, saved_tree
from swiftfl.engines.simulation.engine import Simulation
from swiftfl.errors import UserError
from swiftfl.memory import collecting_seldom
from swiftfl.vector import Vector

_log = logging.getLogger(__name__)

FORMAT = 5


@dataclass(frozen=True)
class Checkpoint:
    """What a paused run is made of: a JSON tree, and the arrays that it refers to."""

    tree: Tree
    arrays: dict[str, Vector]


def save(engine: Simulation) -> Checkpoint:
    """Everything that the rest of the run depends on, as it is now."""
    pool = Pool()
    with collecting_seldom(engine.n + len(engine.world.events.heap)):  # all of it is new, and stays
        state = engine.state(pool)
    return Checkpoint({"format": FORMAT, **_run_of(engine), **state}, pool.arrays)


def restore(engine: Simulation, checkpoint: Checkpoint) -> None:
    """Put a newly made engine of the same setup into the saved state."""
    saved = saved_tree(checkpoint.tree, checkpoint.arrays, engine.models[0], engine.world.first_message)
    if saved["format"].value != FORMAT:
        raise UserError(f"this checkpoint has format {saved['format'].value}, this version reads {FORMAT}")
    for what, expected in _run_of(engine).items():
        found = saved[what].value
        if found != expected:
            raise UserError(f"this checkpoint is of another run: {what} was {found} and is {expected}")
    engine.restore(saved)
    _log.debug("restored at iteration %d with %d arrays", engine.iteration, len(checkpoint.arrays))


def _run_of(engine: Simulation) -> Tree:
    """By what a checkpoint is known to belong to a run."""
    return {"engine": engine.name, "algorithm": engine.setup.algorithm.name, "clients": engine.n}
