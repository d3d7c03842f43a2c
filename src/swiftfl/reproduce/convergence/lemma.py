"""Measurement 3: the client-communication error of Lemma 1, along runs of Algorithm 1.

With D_q = W_{i_q} - W (W is the expected matrix) and u_i = 1/n - e_i, the lemma bounds

    printed_i(t) = E sum_{j<=t} | G^j D_{j+1} ... D_t u_i |^2       by O( sigma^2/M + S(t) ),
    S(t)         = E sum_{j<=t} | grad f_{i_j}(x^j) |^2,

and its proof gives the constants. The step of the proof that leads there writes the product of
(W + D_q) as the product of W plus the product of D_q, which leaves out every mixed term. What the
decomposition of X^t needs is the difference of the products:

    needed_i(t) = E sum_{j<=t} | G^j (W_{i_{j+1}} ... W_{i_t} - W^(t-j)) u_i |^2.

Both are measured, and how much the mixed terms carry: x̄ - x_i as it is, and as the proof has it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from swiftfl.engines import SampledEngine
from swiftfl.graph import Coefficients
from swiftfl.graph.theory import log10_one_minus_nu2
from swiftfl.reproduce.convergence.measure import setup_of, theorem_step_size
from swiftfl.reproduce.convergence.problems import Array, Bowl
from swiftfl.reproduce.convergence.settings import Size, coefficients_of, influence, problem_of
from swiftfl.reproduce.parts import Parameters, Part, Result
from swiftfl.sample import Batch, Slope
from swiftfl.vector import Vector
from swiftfl.workload.base import Evaluation

NEGLIGIBLE = 1e-13


def parts(size: Size, seeds: int) -> list[Part]:
    found = []
    for data, p, seed in product(("iid", "noniid"), ("uniform", "skewed"), range(seeds)):
        parameters: Parameters = {"data": data, "influence": p, "n": size.clients, "seed": seed}
        parameters |= {"log2_T": size.lemma_exponent, "runs": size.lemma_runs}
        found.append(Part(f"lemma-{data}-{p}-seed{seed}", run, parameters))
    return found


class RecordedGradients:
    """A problem that keeps every gradient it gave, by (client, counter), and the exact one's square."""

    name = "recorded gradients"
    buffers = 0

    def __init__(self, problem: Bowl) -> None:
        self.problem, self.parameters = problem, problem.parameters
        self.given: dict[tuple[int, int], tuple[Vector, float]] = {}

    def initial(self, seed: int) -> Vector:
        return self.problem.initial(seed)

    def gradient(self, x: Vector, batch: Batch) -> Slope:
        slope, exact = self.problem.gradient(x, batch), self.problem.exact(x, batch.client)
        self.given[batch.client, batch.counter] = slope.g, float(exact @ exact)
        return slope

    def gradients(self, xs: Sequence[Vector], batches: Sequence[Batch]) -> list[Slope]:
        return [self.gradient(x, batch) for x, batch in zip(xs, batches, strict=True)]

    def evaluate(self, xs: Sequence[Vector]) -> list[Evaluation]:
        return self.problem.evaluate(xs)


@dataclass(frozen=True)
class History:
    """What happened in a run: who was active, with which gradient, and |grad f_{i_j}|^2."""

    active: list[int]
    G: Array
    exact: Array
    step_size: float
    models: Array


def history(problem: Bowl, coefficients: Coefficients, T: int, seed: int) -> History:
    recorded_gradients = RecordedGradients(problem)
    step = theorem_step_size(coefficients.topology.n, T, problem.L, problem.gap)
    setup = setup_of(recorded_gradients, coefficients, step, T, seed)
    draws = SampledEngine(setup)
    active = [draws.draw() for _ in range(T)]
    engine = SampledEngine(setup)
    engine.start()
    engine.advance(T)
    counter = [0] * coefficients.topology.n
    given = []
    for i in active:
        counter[i] += 1
        given.append(recorded_gradients.given[i, counter[i]])
    G, exact = np.array([g for g, _ in given]), np.array([e for _, e in given])
    return History(active, G, exact, step, np.asarray(engine.models))


@dataclass(frozen=True)
class LemmaErrors:
    """Per client i, at one t: both errors, and x̄ - x_i (d, n) as it is and as the proof has it."""

    printed: Array
    needed: Array
    deviation: Array
    deviation_of_proof: Array


def errors_at(past: History, coefficients: Coefficients, t: int) -> LemmaErrors:
    """Backwards from t: each product gains one factor on its left, and G^j picks its row i_j."""
    n = coefficients.topology.n
    W = [coefficients.active_matrix(i) for i in range(n)]
    mean = np.asarray(coefficients.expected_matrix().todense())
    D = [w - mean for w in W]
    drawn = expected = different = np.full((n, n), 1.0 / n) - np.eye(n)
    rows: list[tuple[Array, Array, Array]] = []
    for j in range(t, -1, -1):
        i = past.active[j]
        rows.append((drawn[i], expected[i], different[i]))
        drawn, expected, different = W[i] @ drawn, mean @ expected, D[i] @ different
        if j % 64 == 0 and max(np.abs(x).max() for x in (drawn, expected, different)) < NEGLIGIBLE:
            break
    of_drawn, of_expected, of_different = (np.array([row[k] for row in rows]) for k in range(3))
    G = past.G[t - len(rows) + 1 : t + 1][::-1]
    size = (G**2).sum(axis=1)
    return LemmaErrors(
        printed=size @ of_different**2,
        needed=size @ (of_drawn - of_expected) ** 2,
        deviation=-past.step_size * G.T @ of_drawn,
        deviation_of_proof=-past.step_size * G.T @ (of_expected + of_different),
    )


def contraction(coefficients: Coefficients) -> float:
    """The spectral radius of E[D x D]: below 1, products of D vanish in mean square."""
    n, p = coefficients.topology.n, coefficients.influence
    mean = np.asarray(coefficients.expected_matrix().todense())
    D = [coefficients.active_matrix(i) - mean for i in range(n)]
    moments = sum((p[i] * np.kron(D[i], D[i]) for i in range(n)), np.zeros((n * n, n * n)))
    return float(np.abs(np.linalg.eigvals(moments)).max())


def run(parameters: Parameters) -> Result:
    """Means over `runs` runs, at t = 0, 1, 3, 7, ...; lists are by t, and by client within."""
    n, T = parameters["n"], 2 ** parameters["log2_T"]
    p = influence(parameters["influence"], n)
    coefficients = coefficients_of("ring", p)
    at = [2**k - 1 for k in range(parameters["log2_T"] + 1)]
    printed, needed = np.zeros((2, len(at), n))
    exact = np.zeros(T)
    whole, missed = np.zeros(2)
    for repeat in range(parameters["runs"]):
        seed = parameters["seed"] * 1_000 + repeat
        past = history(problem_of("convex", parameters["data"], p, seed), coefficients, T, seed)
        exact += past.exact / parameters["runs"]
        for k, t in enumerate(at):
            seen = errors_at(past, coefficients, t)
            printed[k] += seen.printed / parameters["runs"]
            needed[k] += seen.needed / parameters["runs"]
            whole += float(p @ (seen.deviation**2).sum(axis=0))
            missed += float(p @ ((seen.deviation - seen.deviation_of_proof) ** 2).sum(axis=0))
    return {
        "t": at,
        "printed": printed.tolist(),
        "needed": needed.tolist(),
        "gradients": exact.tolist(),
        "missed_share": math.sqrt(missed / whole),
    }


def summary(done: Sequence[tuple[Parameters, Result]]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str], list[tuple[Parameters, Result]]] = {}
    for parameters, result in done:
        groups.setdefault((parameters["data"], parameters["influence"]), []).append((parameters, result))
    return [_setting(group[0][0], [result for _, result in group]) for group in groups.values()]


def _setting(parameters: Parameters, results: Sequence[Result]) -> dict[str, Any]:
    n = parameters["n"]
    p = influence(parameters["influence"], n)
    coefficients = coefficients_of("ring", p)
    sigma2 = problem_of("convex", parameters["data"], p).sigma ** 2
    at = results[0]["t"]
    exact = np.mean([result["gradients"] for result in results], axis=0)
    plain = np.array([sigma2 + exact[: t + 1].sum() for t in at])
    log10_bound = np.array([_log10_bound(coefficients, sigma2, exact[: t + 1]) for t in at])
    out: dict[str, Any] = {name: parameters[name] for name in ("data", "influence", "n")}
    out |= {
        "runs": parameters["runs"] * len(results),
        "t": at,
        "rho": coefficients.rho,
        "contraction": contraction(coefficients),
        "right_hand_side": plain.tolist(),
        "log10_bound": log10_bound.tolist(),
        "missed_share": [result["missed_share"] for result in results],
    }
    for name in ("printed", "needed"):
        # At t = 0 the products are empty: there is no difference of products yet.
        worst = np.mean([result[name] for result in results], axis=0).max(axis=1)
        out[name] = {
            "worst_client": worst.tolist(),
            "largest_ratio": float((worst / plain).max()),
            "log10_largest_ratio_to_bound": float((np.log10(worst[1:]) - log10_bound[1:]).max()),
        }
    return out


def _log10_bound(coefficients: Coefficients, sigma2: float, exact: Array) -> float:
    """The last line of the lemma's proof (M = 1, B = n), with the measured |grad f_{i_j}|^2.

    4 (n-1)/n [ sigma^2 (1/(1-rho) + 128/(1-nu^2)) + sum_j |grad|^2 (rho^(t-j) + 128 nu^(2(t-j))) ]
    """
    n = coefficients.topology.n
    log10_gap_nu = log10_one_minus_nu2(n, n)
    back = np.arange(len(exact) - 1, -1, -1)
    nu2_powers = np.exp(back * np.log1p(-(10.0**log10_gap_nu)))
    small = sigma2 / coefficients.spectral_gap + float(exact @ (coefficients.rho**back + 128.0 * nu2_powers))
    large = math.log10(128.0 * sigma2) - log10_gap_nu
    return math.log10(4.0 * (n - 1) / n) + large + math.log10(1.0 + 10.0 ** (math.log10(small) - large))
