"""Small worlds for tests: quadratics on small graphs, in double precision."""

from __future__ import annotations

import json
from typing import Any, TypeVar

import numpy as np

import swiftfl
from swiftfl.algorithm import Algorithm
from swiftfl.costs import Slowdown
from swiftfl.data.batches import NoSamples
from swiftfl.engines import Setup
from swiftfl.engines.simulation import checkpoint
from swiftfl.engines.simulation.engine import Simulation
from swiftfl.graph import Coefficients, Topology, communication_coefficients
from swiftfl.schedule import constant
from swiftfl.verbs import Verb
from swiftfl.workload.quadratic import Quadratic

STEP_SIZE = 0.05
AnySimulation = TypeVar("AnySimulation", bound=Simulation)


def slow(factors: dict[int, float]) -> tuple[Slowdown, ...]:
    return tuple(Slowdown(client, factor) for client, factor in factors.items())


def skewed(n: int) -> np.ndarray:
    """An influence vector far from uniform."""
    p = np.arange(1, n + 1, dtype=float)
    scores: np.ndarray = p / p.sum()
    return scores


def quadratic_setup(
    algorithm: Algorithm[Verb],
    topology: Topology | None = None,
    influence: np.ndarray | None = None,
    method: str = "ccs",
    noise: float = 0.1,
    steps_per_epoch: int = 5,
    dimension: int = 7,
    **options: Any,
) -> tuple[Setup, Coefficients, Quadratic]:
    """A federation on random quadratics; `options` go to `Setup`."""
    topology = topology or swiftfl.ring(6)
    n = topology.n
    coefficients = communication_coefficients(topology, influence, method)
    workload = Quadratic.random(n, dimension, seed=3, noise=noise)
    if "epochs" not in options and "iterations" not in options:
        options["iterations"] = 200
    setup = Setup(
        algorithm=algorithm,
        workload=workload,
        weights=[coefficients.weights(i) for i in range(n)],
        batches=[NoSamples(i, steps_per_epoch) for i in range(n)],
        step_size=constant(STEP_SIZE),
        influence=coefficients.influence.tolist(),
        **options,
    )
    return setup, coefficients, workload


def run_to_end(engine: Any) -> Any:
    engine.start()
    engine.advance(10**9)
    return engine


def clocks(engine: Simulation) -> list[float]:
    """Each client's own time."""
    return [record.clock.now for record in engine.world.records]


def asleep(engine: Simulation) -> list[float]:
    return [record.clock.asleep for record in engine.world.records]


def steps(engine: Simulation) -> list[int]:
    """Each client's steps."""
    return [record.steps for record in engine.world.records]


def finished(engine: Simulation) -> list[bool]:
    return [record.finished for record in engine.world.records]


def resumed(engine: Simulation, fresh: AnySimulation) -> AnySimulation:
    """A new engine in the state of another, by way of JSON."""
    saved = checkpoint.save(engine)
    tree = json.loads(json.dumps(saved.tree, allow_nan=False))
    arrays = {name: x.copy() for name, x in saved.arrays.items()}
    checkpoint.restore(fresh, checkpoint.Checkpoint(tree, arrays))
    return fresh
