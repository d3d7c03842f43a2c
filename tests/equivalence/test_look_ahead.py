"""SWIFT with look-ahead is the paper's matrix form in Z = X - step_size mu M, with Nesterov's move."""

from __future__ import annotations

import numpy as np
import pytest

import swiftfl
from swiftfl.algorithms import Swift, SwiftLookAhead
from swiftfl.engines import SampledEngine, VirtualEngine
from swiftfl.errors import UserError
from swiftfl.experiment.build import build
from swiftfl.experiment.config import Config
from swiftfl.rules import Clipped, SgdRule
from swiftfl.sample import Batch
from swiftfl.schedule import every
from worlds import STEP_SIZE, quadratic_setup, run_to_end, skewed

NOTHING = np.empty(0, dtype=np.int64)
MU = 0.9


@pytest.mark.parametrize("s", [0, 2])
def test_the_matrix_form_in_z(s: int) -> None:
    """Z^{t+1} = Z^t W_i - step_size (g + mu m) e_i^T, with m <- mu m + g and g at x = z + step_size mu m."""
    graph = swiftfl.ring_of_cliques(8, clusters=2)
    n, T = graph.n, 200
    algorithm = SwiftLookAhead(every(s), SgdRule(MU))
    setup, coefficients, workload = quadratic_setup(algorithm, graph, influence=skewed(n), iterations=T)
    Z = np.tile(workload.initial(setup.seed)[:, None], (1, n))
    M = np.zeros_like(Z)
    counters = [1] * n
    draws = SampledEngine(setup)
    for i in [draws.draw() for _ in range(T)]:
        x = Z[:, i] + STEP_SIZE * MU * M[:, i]
        g = workload.gradient(x, Batch(i, counters[i], NOTHING)).g
        if counters[i] % (s + 1) == 0:
            Z = Z @ coefficients.active_matrix(i)
        M[:, i] = MU * M[:, i] + g
        Z[:, i] -= STEP_SIZE * (g + MU * M[:, i])
        counters[i] += 1
    X = np.stack(run_to_end(SampledEngine(setup)).models, axis=1)
    np.testing.assert_allclose(X, Z + STEP_SIZE * MU * M, rtol=0, atol=1e-12)


def test_a_client_alone_has_the_moves_of_momentum() -> None:
    """Nobody to average with: publishing another model changes nothing."""
    models = []
    rule = SgdRule(MU, weight_decay=0.01)
    for algorithm in (Swift(every(1000), rule), SwiftLookAhead(every(1000), rule)):
        setup, _, _ = quadratic_setup(algorithm, epochs=4)
        models.append(np.stack(run_to_end(VirtualEngine(setup)).models))
    np.testing.assert_allclose(models[0], models[1], rtol=0, atol=1e-12)


def test_it_needs_momentum_and_has_an_order_of_its_own() -> None:
    for rule in (SgdRule(), Clipped(SgdRule(), 1.0)):
        with pytest.raises(UserError, match="look_ahead has no effect: the update rule has no momentum"):
            SwiftLookAhead(rule=rule)
    momentum = {"algorithm.look_ahead": True, "algorithm.momentum": 0.9}
    for changes in ({"algorithm.broadcast": "after"}, {"algorithm.decay_at": "average"}):
        with pytest.raises(UserError, match="look_ahead is an order of its own"):
            build(Config().with_changes({**momentum, **changes}))
