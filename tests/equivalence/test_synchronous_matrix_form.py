"""D-SGD, PA-SGD and LD-SGD in virtual time are their matrix recursions, whatever the costs."""

from __future__ import annotations

import numpy as np
import pytest

import swiftfl
from swiftfl.algorithms import Synchronous, dsgd, ldsgd, pasgd
from swiftfl.costs import Costs
from swiftfl.engines import SampledEngine, VirtualEngine
from swiftfl.sample import Batch
from worlds import STEP_SIZE, quadratic_setup, run_to_end, slow

NOTHING = np.empty(0, dtype=np.int64)
ALGORITHMS: dict[str, Synchronous] = {"dsgd": dsgd(), "pasgd": pasgd(2), "ldsgd": ldsgd(2, 2)}
AVERAGING = {
    "dsgd": lambda c: True,
    "pasgd": lambda c: c % 3 == 0,
    "ldsgd": lambda c: c % 4 in (3, 0),
}


def averaging_matrix(coefficients: swiftfl.Coefficients) -> np.ndarray:
    n = coefficients.topology.n
    W = np.zeros((n, n))
    for i in range(n):
        for j, w in coefficients.column(i).items():
            W[j, i] = w
    return W


@pytest.mark.parametrize("engine", [VirtualEngine, SampledEngine])
@pytest.mark.parametrize("barrier", ["neighbours", "global"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_synchronous_is_the_matrix_recursion(name: str, barrier: str, engine: type[VirtualEngine]) -> None:
    topology = swiftfl.ring_of_cliques(10, clusters=3)
    epochs, steps = 4, 5
    setup, coefficients, workload = quadratic_setup(
        ALGORITHMS[name], topology, method="metropolis", epochs=epochs, steps_per_epoch=steps,
        barrier=barrier, costs=Costs(slowdowns=slow({2: 4.0, 7: 1.3})),
    )  # fmt: skip
    W = averaging_matrix(coefficients)
    np.testing.assert_allclose(W.sum(axis=0), 1, atol=1e-12)
    np.testing.assert_allclose(W, W.T, atol=1e-12)
    X = np.tile(workload.initial(setup.seed)[:, None], (1, topology.n))
    for c in range(1, epochs * steps + 1):
        G = np.stack(
            [workload.gradient(X[:, i].copy(), Batch(i, c, NOTHING)).g for i in range(topology.n)], axis=1
        )
        X = X - STEP_SIZE * G
        if AVERAGING[name](c):
            X = X @ W

    world = run_to_end(engine(setup))
    np.testing.assert_allclose(np.stack(world.models, axis=1), X, rtol=0, atol=1e-12)


def test_reductions() -> None:
    """PA(0) = D-SGD and LD(I1, 1) = PA(I1), bit for bit."""

    def models(algorithm: Synchronous) -> np.ndarray:
        return np.stack(run_to_end(VirtualEngine(quadratic_setup(algorithm)[0])).models)

    assert (models(pasgd(0)) == models(dsgd())).all()
    assert (models(ldsgd(3, 1)) == models(pasgd(3))).all()
    assert (models(pasgd(1)) != models(dsgd())).any()
