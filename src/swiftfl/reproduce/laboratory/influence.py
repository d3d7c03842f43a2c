"""`swiftfl reproduce influence`: the p that `swiftfl graph --optimise-influence` chooses, against uniform,
data and rates.

A convex problem of which every constant is known (docs/convergence.md; L = sigma = Delta_f = 1), eight
clients, of which client 0 is four times as slow and has four times as much data. Data differ (zeta = 1) or
not (zeta = 0). The loss is f - f* of the objective weighted by data, at the consensus model, averaged since
the measurement before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import swiftfl
from swiftfl.algorithms import Swift
from swiftfl.costs import Costs, Slowdown
from swiftfl.engines import VirtualEngine
from swiftfl.graph import Topology, communication_coefficients
from swiftfl.graph.optimal_influence import InfluenceProblem, Prediction
from swiftfl.graph.theory import Problem
from swiftfl.reproduce.convergence.measure import setup_of, watch
from swiftfl.reproduce.convergence.problems import convex
from swiftfl.reproduce.laboratory.plan import SCALES, Inquiry, InquiryScale, Trial, TrialGroup

LEARNER = f"{__name__}:learn"
_NETWORKS: dict[str, tuple[str, Topology]] = {
    "ring": ("ring", swiftfl.ring(8)),
    "cliques": ("two cliques", swiftfl.ring_of_cliques(8, clusters=2)),
}
_DATA = {"iid": ("IID", 0.0, 0.02), "differ": ("ζ = 1", 1.0, 0.05)}
"""Their zeta, and the loss to which times are measured."""
FACTOR = 4.0
RATES = np.array([1 / FACTOR, 1, 1, 1, 1, 1, 1, 1])
SIZES = np.array([FACTOR, 1, 1, 1, 1, 1, 1, 1])
METHODS = {"uniform": "uniform", "data": "by data", "rates": "by rates", "optimal": "optimal"}
SMOKE_STEPS, STEPS = 1024, 8192
_WINDOW = 8
"""Client steps between two looks at the loss."""
_GRID = tuple(0.005 * 2**k for k in range(8))


def plan(scale: InquiryScale) -> Inquiry:
    smoke = scale == SCALES["smoke"]
    scale = replace(
        scale,
        steps=SMOKE_STEPS if smoke else STEPS,
        tuning_seeds=1 if smoke else 4,
        points=32,
        step_sizes=_GRID[1::2] if smoke else _GRID,
    )
    groups, trials = {}, []
    for network, (label, graph) in _NETWORKS.items():
        for data, (words, _, target) in _DATA.items():
            key = f"{network}_{data}"
            groups[key] = TrialGroup(f"{label}, {words}", scale.steps / float(RATES.sum()), target)
            for name, found in choices(graph, data, scale.steps).items():
                world = {"network": network, "data": data, "influence": found.influence.tolist()}
                trials.append(Trial(key, name, {**world, "predicted": found.level}))
    title = "Influence: one slow client with much data, two networks"
    return Inquiry("influence", title, scale, groups, METHODS, tuple(trials), LEARNER, to_target=True)


def choices(graph: Topology, data: str, steps: int) -> dict[str, Prediction]:
    """What is chosen without a calculator, and what the calculator chooses."""
    problem = Problem(sigma2=1.0, zeta2=_DATA[data][1] ** 2)
    asked = InfluenceProblem(graph, RATES, SIZES, problem, seconds=steps / float(RATES.sum()))
    return {**asked.candidates(), "optimal": asked.optimise()}


def learn(
    world: dict[str, Any],
    *,
    step_size: float,
    seed: int,
    steps: int,
    seconds: float,
    every: int,
    clients: bool,
) -> dict[str, Any]:
    """One run. Nobody waits, so that equal steps are equal time, for every p."""
    problem = convex(SIZES / SIZES.sum(), world["data"] == "iid", seed)
    costs = Costs(
        compute=1.0, send=0.0, mix=0.0, latency=0.05, spread=0.2, seed=seed, slowdowns=(Slowdown(0, FACTOR),)
    )
    coefficients = communication_coefficients(_NETWORKS[world["network"]][1], np.array(world["influence"]))
    engine = VirtualEngine(setup_of(problem, coefficients, step_size, steps, seed, Swift(), costs))
    seen = watch(engine, [problem], every=_WINDOW)[0]
    times = seen.at * (engine.now / max(1, engine.iteration))
    looks = every // _WINDOW
    rows = [{"iteration": 0, "time": 0.0, "loss": float(seen.gap[0])}]
    for end in range(looks, len(seen.at), looks):
        loss = float(seen.gap[end - looks + 1 : end + 1].mean())
        rows.append({"iteration": int(seen.at[end]), "time": float(times[end]), "loss": loss})
    return {"rows": rows}
