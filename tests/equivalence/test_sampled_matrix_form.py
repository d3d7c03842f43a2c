"""The sampled engine is Algorithm 1: X^{t+1} = X^t W_{i_t} - step_size G(x_{i_t})."""

from __future__ import annotations

import numpy as np
import pytest

import swiftfl
from swiftfl.algorithms import Swift
from swiftfl.engines import SampledEngine
from swiftfl.sample import Batch
from swiftfl.schedule import every
from worlds import STEP_SIZE, quadratic_setup, run_to_end, skewed

NOTHING = np.empty(0, dtype=np.int64)
GRAPHS = {
    "ring": swiftfl.ring(6),
    "star": swiftfl.star(5),
    "roc": swiftfl.ring_of_cliques(10, clusters=3),
}


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("s", [0, 1, 3])
@pytest.mark.parametrize("influence", ["uniform", "skewed"])
def test_sampled_swift_is_the_matrix_recursion(graph: str, s: int, influence: str) -> None:
    topology = GRAPHS[graph]
    n, T = topology.n, 300
    p = skewed(n) if influence == "skewed" else None
    setup, coefficients, workload = quadratic_setup(Swift(every(s)), topology, p, iterations=T)

    draws = SampledEngine(setup)
    active = [draws.draw() for _ in range(T)]
    X = np.tile(workload.initial(setup.seed)[:, None], (1, n))
    counters = [1] * n
    for i in active:
        G = np.zeros_like(X)
        G[:, i] = workload.gradient(X[:, i].copy(), Batch(i, counters[i], NOTHING)).g
        W = coefficients.active_matrix(i) if counters[i] % (s + 1) == 0 else np.eye(n)
        X = X @ np.asarray(W.todense() if hasattr(W, "todense") else W) - STEP_SIZE * G
        counters[i] += 1

    engine = run_to_end(SampledEngine(setup))
    assert engine.iteration == T
    np.testing.assert_allclose(np.stack(engine.models, axis=1), X, rtol=0, atol=1e-12)


def test_clients_act_as_often_as_their_influence_says() -> None:
    p = skewed(6)
    setup, _, _ = quadratic_setup(Swift(), influence=p, iterations=60_000)
    engine = SampledEngine(setup)
    counts = np.bincount([engine.draw() for _ in range(60_000)], minlength=6)
    # Each count is binomial: five standard deviations.
    assert (np.abs(counts - 60_000 * p) < 5 * np.sqrt(60_000 * p * (1 - p))).all()
