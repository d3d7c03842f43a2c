"""With equal speeds, SWIFT is the printed D-SGD in the other order: it averages first and updates then.

Everybody publishes x^t, takes its gradient, and averages with the x^t of its neighbours, so
X^{t+1} = X^t W - step_size G(X^t), while D-SGD is X^{t+1} = (X^t - step_size G(X^t)) W. No model is
stale in either; what SWIFT loses or gains there comes from the order alone (docs/cifar10.md).
"""

from __future__ import annotations

import numpy as np

import swiftfl
from swiftfl.algorithms import Swift
from swiftfl.engines import VirtualEngine
from swiftfl.sample import Batch
from worlds import STEP_SIZE, quadratic_setup, run_to_end

NOTHING = np.empty(0, dtype=np.int64)


def test_swift_at_equal_speeds_averages_first_and_updates_then() -> None:
    topology = swiftfl.ring(10)
    n, steps = topology.n, 40
    setup, coefficients, workload = quadratic_setup(Swift(), topology, epochs=8, steps_per_epoch=5)
    W = np.zeros((n, n))
    for i in range(n):
        for j, w in coefficients.column(i).items():
            W[j, i] = w
    X = np.tile(workload.initial(setup.seed)[:, None], (1, n))
    for c in range(1, steps + 1):
        G = np.stack([workload.gradient(X[:, i].copy(), Batch(i, c, NOTHING)).g for i in range(n)], axis=1)
        X = X @ W - STEP_SIZE * G
    engine = run_to_end(VirtualEngine(setup))
    np.testing.assert_allclose(np.stack(engine.models, axis=1), X, rtol=0, atol=1e-12)
