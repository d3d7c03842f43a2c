"""Measurement 2: one client 1 to 100 times slower, in virtual time.

SWIFT is run with p set to the true rates (what the theorem assumes), and with p left uniform;
AD-PSGD, whose theory bounds the largest delay, beside it. Two objectives are evaluated: f weighted
by the true rates, which is what such a federation minimises, and f weighted uniformly. The theorem's
x̄ counts the slow client's model like any other, however old it is; so the average of the models
weighted by the rates is evaluated as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from swiftfl.algorithm import Algorithm
from swiftfl.algorithms import AdPsgd, Swift
from swiftfl.costs import Costs, Slowdown
from swiftfl.engines import VirtualEngine
from swiftfl.reproduce.convergence.measure import setup_of, theorem_step_size, watch
from swiftfl.reproduce.convergence.problems import Array
from swiftfl.reproduce.convergence.settings import Size, coefficients_of, influence, problem_of
from swiftfl.reproduce.parts import Parameters, Part, Result
from swiftfl.verbs import Verb

METHODS = ("swift_rates", "swift_uniform", "adpsgd")
PROBLEMS = (("convex", "iid"), ("convex", "noniid"), ("rippled", "noniid"))
SLOW = 0
LEVEL = 0.02
"""Of the squared gradient norm: about 1/70 of the start on the convex problem, ten times the noise."""


def parts(size: Size, seeds: int) -> list[Part]:
    found = []
    for (problem, data), method, factor in product(PROBLEMS, METHODS, size.factors):
        for seed in range(seeds):
            parameters: Parameters = {"problem": problem, "data": data, "method": method, "factor": factor}
            parameters |= {"n": size.clients, "log2_T": size.delay_exponent, "level": LEVEL, "seed": seed}
            found.append(Part(f"delay-{problem}-{data}-{method}-{factor}x-seed{seed}", run, parameters))
    return found


def true_rates(n: int, factor: float) -> Array:
    """Every client's share of the steps when client 0 needs `factor` times as long for each."""
    speed = np.ones(n)
    speed[SLOW] = 1.0 / factor
    rates: Array = speed / speed.sum()
    return rates


def run(parameters: Parameters) -> Result:
    n, T, seed = parameters["n"], 2 ** parameters["log2_T"], parameters["seed"]
    uniform, rates = influence("uniform", n), true_rates(n, parameters["factor"])
    problem = problem_of(parameters["problem"], parameters["data"], uniform, seed)
    by_rate = problem.weighted(rates)
    coefficients = coefficients_of("ring", rates if parameters["method"] == "swift_rates" else uniform)
    algorithm: Algorithm[Verb] = AdPsgd(seed=seed) if parameters["method"] == "adpsgd" else Swift()
    # Only compute takes a client's time, so its rate is 1 / factor; messages travel a tenth as long.
    costs = Costs(
        compute=0.01, send=0.0, mix=0.0, latency=0.001, spread=0.2, seed=seed,
        slowdowns=(Slowdown(SLOW, parameters["factor"]),),
    )  # fmt: skip
    step = theorem_step_size(n, T, problem.L, problem.gap)
    engine = VirtualEngine(setup_of(problem, coefficients, step, T, seed, algorithm, costs))
    rated, even, weighted = watch(
        engine, [by_rate, problem, by_rate], every=max(1, n // 2), averages=[uniform, uniform, rates]
    )
    return {
        "averaged_by_rate": rated.averaged,
        "averaged_uniform": even.averaged,
        "averaged_of_weighted_model": weighted.averaged,
        "first_below_by_rate": rated.first_below(parameters["level"]),
        "first_below_uniform": even.first_below(parameters["level"]),
        "first_below_of_weighted_model": weighted.first_below(parameters["level"]),
        "steps_of_slow": engine.world.records[SLOW].steps,
        "largest_delay": engine.figures()["largest_delay"] if parameters["method"] == "adpsgd" else None,
        "rho": None if parameters["method"] == "adpsgd" else coefficients.rho,
        "step_size": step,
    }


def summary(done: Sequence[tuple[Parameters, Result]]) -> list[dict[str, Any]]:
    """One entry per problem, data, method and factor, with each number by seed."""
    groups: dict[tuple[Any, ...], list[Result]] = {}
    names = ("problem", "data", "method", "factor", "n", "log2_T", "level")
    for parameters, result in done:
        groups.setdefault(tuple(parameters[name] for name in names), []).append(result)
    return [
        dict(zip(names, key, strict=True)) | {name: [r[name] for r in results] for name in results[0]}
        for key, results in groups.items()
    ]
