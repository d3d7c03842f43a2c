"""Measurement 1: the averaged squared gradient norm of the consensus model against T.

Theorem 1 chooses the step size from T, so each T is a run of its own. The fit is over those T for
which step_size L <= 1/8: for shorter runs the theorem's step is too long to be stable at one client.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

from swiftfl.engines import SampledEngine
from swiftfl.graph import Coefficients
from swiftfl.graph.theory import bound, theory
from swiftfl.reproduce.convergence.exact import averaged_gradient
from swiftfl.reproduce.convergence.fit import power, slope_over_seeds
from swiftfl.reproduce.convergence.measure import setup_of, theorem_step_size, watch
from swiftfl.reproduce.convergence.problems import Bowl, convex
from swiftfl.reproduce.convergence.settings import (
    Size,
    coefficients_of,
    constants,
    influence,
    problem_of,
    theory_problem,
)
from swiftfl.reproduce.parts import Parameters, Part, Result

LONGEST_STEP = 1 / 8
LATE = (30, 40)
"""The exact slope is also taken between T = 2^30 and 2^40, far out of reach of any run."""


def parts(size: Size, seeds: int) -> list[Part]:
    found = []
    for problem, data, p in product(("convex", "rippled"), ("iid", "noniid"), ("uniform", "skewed")):
        for seed in range(seeds):
            parameters: Parameters = {"problem": problem, "data": data, "influence": p, "n": size.clients}
            parameters |= {"log2_T": list(size.rate_exponents), "seed": seed}
            found.append(Part(f"rate-{problem}-{data}-{p}-seed{seed}", run, parameters))
    return found


def _objects(parameters: Parameters) -> tuple[Bowl, Coefficients]:
    p = influence(parameters["influence"], parameters["n"])
    problem = problem_of(parameters["problem"], parameters["data"], p, parameters.get("seed", 0))
    return problem, coefficients_of("ring", p)


def run(parameters: Parameters) -> Result:
    problem, coefficients = _objects(parameters)
    n, seed = parameters["n"], parameters["seed"]
    averaged, gap = [], []
    for k in parameters["log2_T"]:
        step = theorem_step_size(n, 2**k, problem.L, problem.gap)
        engine = SampledEngine(setup_of(problem, coefficients, step, 2**k, seed))
        (seen,) = watch(engine, [problem], every=max(1, n // 2))
        averaged.append(seen.averaged)
        gap.append(seen.last_gap)
    return {"averaged": averaged, "last_gap": gap}


def summary(done: Sequence[tuple[Parameters, Result]]) -> list[dict[str, Any]]:
    """One entry per setting, its seeds together."""
    groups: dict[tuple[str, ...], list[tuple[Parameters, Result]]] = {}
    for parameters, result in done:
        key = tuple(parameters[name] for name in ("problem", "data", "influence"))
        groups.setdefault(key, []).append((parameters, result))
    return [_setting(group[0][0], [result for _, result in group]) for group in groups.values()]


def _setting(parameters: Parameters, results: Sequence[Result]) -> dict[str, Any]:
    problem, coefficients = _objects({**parameters, "seed": 0})
    n, logs = parameters["n"], parameters["log2_T"]
    steps = [theorem_step_size(n, 2**k, problem.L, problem.gap) for k in logs]
    fitted = [
        k
        for k, step in enumerate(steps)
        if step * problem.L <= LONGEST_STEP and all(result["averaged"][k] is not None for result in results)
    ]
    T = [float(2 ** logs[k]) for k in fitted]
    curves = [[result["averaged"][k] for k in fitted] for result in results]
    out: dict[str, Any] = {name: parameters[name] for name in ("problem", "data", "influence", "n")}
    out |= {
        "constants": constants(problem),
        "rho": coefficients.rho,
        "T": [2**k for k in logs],
        "step_size": steps,
        "averaged": [result["averaged"] for result in results],
        "last_gap": [result["last_gap"] for result in results],
        "fit": {"from": int(T[0]), "to": int(T[-1]), **slope_over_seeds(T, curves).as_json()},
        "bound": _bound(coefficients, problem, logs),
        "exact": None,
    }
    if not problem.a:
        exact = [averaged_gradient(problem, coefficients, s, k) for s, k in zip(steps, logs, strict=True)]
        out["exact"] = {
            "averaged": exact,
            "slope": power(T, [exact[k] for k in fitted]),
            "late": _late_slope(problem, coefficients),
        }
    return out


def _late_slope(problem: Bowl, coefficients: Coefficients) -> dict[str, float]:
    n = coefficients.topology.n
    values = [
        averaged_gradient(problem, coefficients, theorem_step_size(n, 2**k, problem.L, problem.gap), k)
        for k in LATE
    ]
    return {"from": 2.0 ** LATE[0], "to": 2.0 ** LATE[1], "slope": power([2.0**k for k in LATE], values)}


def _bound(coefficients: Coefficients, problem: Bowl, logs: Sequence[int]) -> dict[str, Any]:
    """Theorem 1's right-hand side at each T, and the T from which on it is claimed, as log10."""
    numbers = theory(coefficients, theory_problem(problem))
    sides = [bound(k * math.log10(2.0), numbers.log10_rho_nu, theory_problem(problem)) for k in logs]
    return {
        "log10_printed": [side.log10_printed for side in sides],
        "log10_corrected": [side.log10_corrected for side in sides],
        "log10_smallest_T": numbers.log10_iterations,
    }


# --- the theorem where its T can be reached ------------------------------------------------------


def reach_parts(size: Size, seeds: int) -> list[Part]:
    """Two clients, and a start so near the optimum that the theorem's T is 2^reach_exponent."""
    return [
        Part(f"reach-seed{seed}", run_reach, {"log2_T": size.reach_exponent, "seed": seed})
        for seed in range(seeds)
    ]


def _reach_objects(log2_T: int, seed: int) -> tuple[Bowl, Coefficients]:
    p = influence("uniform", 2)
    coefficients = coefficients_of("ring", p)
    # The smallest T is proportional to Delta_f: take the Delta_f for which it is the wanted one.
    smallest = theory(coefficients, theory_problem(convex(p, False))).log10_iterations
    gap = 10.0 ** (log2_T * math.log10(2.0) - smallest) * (1 - 1e-9)
    return convex(p, False, seed, gap=gap), coefficients


def run_reach(parameters: Parameters) -> Result:
    k, seed = parameters["log2_T"], parameters["seed"]
    problem, coefficients = _reach_objects(k, seed)
    step = theorem_step_size(2, 2**k, problem.L, problem.gap)
    (seen,) = watch(SampledEngine(setup_of(problem, coefficients, step, 2**k, seed)), [problem], every=2)
    return {"averaged": seen.averaged}


def reach_summary(done: Sequence[tuple[Parameters, Result]]) -> dict[str, Any]:
    k = done[0][0]["log2_T"]
    problem, coefficients = _reach_objects(k, 0)
    step = theorem_step_size(2, 2**k, problem.L, problem.gap)
    return {
        "n": 2,
        "T": 2**k,
        "step_size": step,
        "constants": constants(problem),
        "averaged": [result["averaged"] for _, result in done],
        "exact": averaged_gradient(problem, coefficients, step, k),
        "bound": _bound(coefficients, problem, [k]),
    }
