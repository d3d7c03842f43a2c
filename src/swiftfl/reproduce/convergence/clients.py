"""Measurement 4: how many iterations a level takes with n clients (the corollary).

The corollary says that for uniform p the theorem holds from T = Omega(n^2) on. From there on its
bound does not contain n, rho_nu aside: with n clients at work at once, the same T takes 1/n of the
time. Each T is a run of its own with the theorem's step size; T doubles until the finest level is met.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from swiftfl.engines import SampledEngine
from swiftfl.graph.theory import theory
from swiftfl.reproduce.convergence.fit import first_below, slope_over_seeds
from swiftfl.reproduce.convergence.measure import setup_of, theorem_step_size, watch
from swiftfl.reproduce.convergence.settings import (
    Size,
    coefficients_of,
    influence,
    problem_of,
    theory_problem,
)
from swiftfl.reproduce.parts import Parameters, Part, Result


def parts(size: Size, seeds: int) -> list[Part]:
    found = []
    for graph in ("ring", "complete"):
        for n in sorted(size.numbers, reverse=True):
            for seed in range(seeds):
                parameters: Parameters = {"graph": graph, "n": n, "seed": seed}
                parameters |= {"log2_T": list(size.numbers_exponents), "levels": list(size.levels)}
                parameters |= {"gap_levels": list(size.gap_levels)}
                found.append(Part(f"clients-{graph}-{n}-seed{seed}", run, parameters))
    return found


def run(parameters: Parameters) -> Result:
    n, seed = parameters["n"], parameters["seed"]
    p = influence("uniform", n)
    problem, coefficients = problem_of("convex", "noniid", p, seed), coefficients_of(parameters["graph"], p)
    averaged: list[float | None] = []
    gaps: list[float | None] = []
    for k in parameters["log2_T"]:
        step = theorem_step_size(n, 2**k, problem.L, problem.gap)
        engine = SampledEngine(setup_of(problem, coefficients, step, 2**k, seed))
        (seen,) = watch(engine, [problem], every=max(1, n // 2))
        averaged.append(seen.averaged if math.isfinite(seen.averaged) else None)
        gaps.append(seen.last_gap if math.isfinite(seen.last_gap) else None)
        if seen.averaged <= min(parameters["levels"]) and seen.last_gap <= min(parameters["gap_levels"]):
            break
    return {"averaged": averaged, "last_gap": gaps}


def summary(done: Sequence[tuple[Parameters, Result]]) -> list[dict[str, Any]]:
    """One entry per graph: iterations to each level by n and seed, and the exponent of n."""
    graphs = list(dict.fromkeys(parameters["graph"] for parameters, _ in done))
    return [_graph(graph, [pair for pair in done if pair[0]["graph"] == graph]) for graph in graphs]


def _graph(graph: str, done: Sequence[tuple[Parameters, Result]]) -> dict[str, Any]:
    numbers = sorted({parameters["n"] for parameters, _ in done})
    first = done[0][0]
    by_n = {n: [(a, b) for a, b in done if a["n"] == n] for n in numbers}
    return {
        "graph": graph,
        "numbers": numbers,
        "T": [2**k for k in first["log2_T"]],
        "averaged": {str(n): [result["averaged"] for _, result in by_n[n]] for n in numbers},
        "last_gap": {str(n): [result["last_gap"] for _, result in by_n[n]] for n in numbers},
        "log10_theorem_T": [_log10_smallest(graph, n) for n in numbers],
        "gradient": [_level("averaged", level, by_n) for level in first["levels"]],
        "loss": [_level("last_gap", level, by_n) for level in first["gap_levels"]],
    }


def _level(name: str, level: float, by_n: dict[int, list[tuple[Parameters, Result]]]) -> dict[str, Any]:
    reached = {n: [_iterations(a, b[name], level) for a, b in pairs] for n, pairs in by_n.items()}
    counted = {n: values for n, values in reached.items() if all(v is not None for v in values)}
    curves = [[float(v or 0.0) for v in values] for values in zip(*counted.values(), strict=True)]
    exponents = [
        slope_over_seeds(list(counted)[first:], [curve[first:] for curve in curves]).as_json()
        for first in (0, -2)
        if len(counted) > 1
    ]
    return {
        "level": level,
        "iterations": {str(n): values for n, values in reached.items()},
        "exponent": exponents[0] if exponents else None,
        "last_exponent": exponents[1] if exponents else None,
        "fitted_n": list(counted),
    }


def _iterations(parameters: Parameters, values: Sequence[float | None], level: float) -> float | None:
    T = [float(2**k) for k in parameters["log2_T"][: len(values)]]
    return first_below(T, [math.inf if v is None else v for v in values], level)


def _log10_smallest(graph: str, n: int) -> float:
    p = influence("uniform", n)
    problem = problem_of("convex", "noniid", p)
    return theory(coefficients_of(graph, p), theory_problem(problem)).log10_iterations
