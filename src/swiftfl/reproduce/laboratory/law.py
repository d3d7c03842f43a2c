"""How far SWIFT's mean model moves per step: the law of docs/step-size.md, predicted and measured.

Gradients never change, so that the way of the mean model is all that there is to see. The age of the models
that are averaged is predicted by renewal theory, the factor by the law; both are measured, and the factor
once more with corrected steps.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

import swiftfl
from swiftfl.algorithm import Algorithm, Around
from swiftfl.algorithms import Swift
from swiftfl.client import Client, State
from swiftfl.costs import Costs
from swiftfl.data.batches import NoSamples
from swiftfl.engines import SampledEngine, Setup, VirtualEngine
from swiftfl.graph import Topology, communication_coefficients
from swiftfl.reproduce.parts import Parameters, Part, Result
from swiftfl.schedule import constant
from swiftfl.verbs import Fetched, Verb
from swiftfl.workload.quadratic import Linear

STEP_SIZE = 0.01
SPREAD = 0.2
CV2 = math.exp(SPREAD**2) - 1  # of log-normal step lengths
FREE: dict[str, Any] = {"compute": 1.0, "send": 0.0, "mix": 0.0, "bandwidth": 1e12}
"""A step takes a second, and nothing else takes time but the latency."""
_CLIENTS, _OWN = 16, 1 / 3  # a ring, and what a client keeps of its own model there


@dataclass(frozen=True)
class Regime:
    """A world, and how old models are there at the fetch, by theory."""

    label: str
    costs: Costs
    age: float
    sampled: bool = False

    def engine(self, setup: Setup) -> VirtualEngine | SampledEngine:
        return SampledEngine(setup) if self.sampled else VirtualEngine(setup)


def _apart(latency: float, label: str) -> Regime:
    """Clients that drift apart: a model has been the newest for (1 + cv^2) / 2 steps, after its journey."""
    return Regime(label, Costs(**FREE, latency=latency, spread=SPREAD), (1 + CV2) / 2 + latency)


REGIMES = {
    "lockstep": Regime("lockstep, short links", Costs(**FREE, latency=0.02), 1.0),
    "spread": _apart(0.02, "20 % spread, short links"),
    "half": _apart(0.5, "20 % spread, latency of half a step"),
    "one": _apart(1.0, "20 % spread, latency of one step"),
    "three": _apart(3.0, "20 % spread, latency of three steps"),
    "sampled": Regime("sampled engine", Costs(), 1.0, sampled=True),
}


def predicted(own: float, age: float) -> float:
    """The factor by which SWIFT's steps are effectively longer than they say."""
    return 1.0 / (1.0 - (1.0 - own) * (1.0 - age))


@dataclass(frozen=True)
class Observed(Around[Verb]):
    """An algorithm whose ages are kept as they are seen."""

    seen: list[float] = field(default_factory=list)

    def step(self, me: Client, s: State) -> Generator[Verb, object, State]:
        step, reply = self.algorithm.step(me, s), None
        while True:
            try:
                verb = step.send(reply)
            except StopIteration as end:
                state: State = end.value
                return state
            reply = yield verb
            if isinstance(reply, Fetched):
                self.seen.extend(reply.ages.values())


def linear_setup(
    algorithm: Algorithm[Verb],
    graph: Topology,
    costs: Costs,
    steps: int,
    gradients: npt.NDArray[np.float64] | None = None,
) -> Setup:
    """Gradients that never change: 1 for everybody, unless others are given."""
    w, n = communication_coefficients(graph), graph.n
    return Setup(
        algorithm,
        Linear(np.ones((n, 1)) if gradients is None else gradients),
        [w.weights(i) for i in range(n)],
        [NoSamples(i, 10) for i in range(n)],
        constant(STEP_SIZE),
        w.influence.tolist(),
        costs=costs,
        iterations=n * steps,
    )


def factor(regime: Regime, algorithm: Algorithm[Verb], graph: Topology, steps: int = 300) -> float:
    """How far the mean model moves per step, in step sizes, once the first fifth of the steps is over."""
    engine = regime.engine(linear_setup(algorithm, graph, regime.costs, steps))
    engine.start()
    engine.advance(graph.n * steps // 5)
    before, since = float(np.mean(engine.models)), engine.iteration
    engine.advance(10**9)
    moved = before - float(np.mean(engine.models))
    return moved / STEP_SIZE * graph.n / (engine.iteration - since)


def parts(steps: int) -> list[Part]:
    return [Part(f"law-{key}", measure, {"regime": key, "steps": steps}) for key in REGIMES]


def measure(parameters: Parameters) -> Result:
    """In a worker process: one regime, on a ring."""
    regime, graph = REGIMES[parameters["regime"]], swiftfl.ring(_CLIENTS)
    watched = Observed(Swift())
    moved = factor(regime, watched, graph, parameters["steps"])
    return {
        "label": regime.label,
        "age": regime.age,
        "measured_age": float(np.mean(watched.seen)),
        "factor": predicted(_OWN, regime.age),
        "measured_factor": moved,
        "corrected": factor(regime, Swift(corrected=True), graph, parameters["steps"]),
    }
