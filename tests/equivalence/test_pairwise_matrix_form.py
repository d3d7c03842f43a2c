"""AD-PSGD, MATCHA, gossip SGD, all-reduce SGD and FedAvg against their matrix forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import swiftfl
from swiftfl.algorithms import AdPsgd, AllReduceSgd, FedAvg, Gossip, Matcha
from swiftfl.costs import Costs
from swiftfl.engines import SampledEngine, VirtualEngine
from swiftfl.graph.matchings import matching_plan
from swiftfl.sample import Batch
from swiftfl.schedule import Averaging, every
from worlds import STEP_SIZE, quadratic_setup, run_to_end, slow

NOTHING = np.empty(0, dtype=np.int64)
GRAPH = swiftfl.ring_of_cliques(8, clusters=2)
N = GRAPH.n
EPOCHS, STEPS = 4, 5


def start(workload: Any) -> np.ndarray:
    return np.tile(workload.initial(0)[:, None], (1, N))


def gradient(workload: Any, x: np.ndarray, i: int, c: int) -> np.ndarray:
    return np.asarray(workload.gradient(x.copy(), Batch(i, c, NOTHING)).g)


def gradients(workload: Any, X: np.ndarray, c: int) -> np.ndarray:
    return np.stack([gradient(workload, X[:, i], i, c) for i in range(N)], axis=1)


def pair_matrix(pairs: list[tuple[int, int]], alpha: float = 0.5) -> np.ndarray:
    W = np.eye(N)
    for i, j in pairs:
        e = np.eye(N)[:, i] - np.eye(N)[:, j]
        W -= alpha * np.outer(e, e)
    return W


@pytest.mark.parametrize("averaging", ["after", "background"])
def test_sampled_adpsgd(averaging: Averaging) -> None:
    """X_{k+1} = X_k W_k - step_size G(X^_k): the gradient is taken at the model read a while ago."""
    algorithm = AdPsgd(seed=9, averaging=averaging)
    setup, _, workload = quadratic_setup(algorithm, GRAPH, iterations=200)
    draws = SampledEngine(setup)
    X = start(workload)
    counter, read, read_at = [1] * N, X.copy(), [0] * N
    delays = []
    for k in range(200):
        i = draws.draw()
        j = algorithm.partner(setup.client(i), counter[i])
        g = gradient(workload, read[:, i], i, counter[i])
        delays.append(k - read_at[i])
        X = X @ pair_matrix([(i, j)])
        X[:, i] -= STEP_SIZE * g
        counter[i] += 1
        read[:, i], read_at[i] = X[:, i], k + 1
    engine = run_to_end(SampledEngine(setup))
    np.testing.assert_allclose(np.stack(engine.models, axis=1), X, rtol=0, atol=1e-12)
    assert engine.figures()["largest_delay"] == max(delays)


def test_virtual_adpsgd_with_averaging_in_the_background() -> None:
    """Every step is two matrices at their own times: W_k at its beginning, the gradient's move at its end.

    Averaging takes no time here and compute times are all different, so no two things happen at once.
    """
    algorithm = AdPsgd(seed=9, averaging="background")
    seconds = {i: 0.01 * (1.0 + 0.37 * i) for i in range(N)}
    costs = Costs(compute=0.01, send=0.0, mix=0.0, latency=0.0, bandwidth=np.inf,
                  slowdowns=slow({i: s / 0.01 for i, s in seconds.items()}))  # fmt: skip
    setup, _, workload = quadratic_setup(algorithm, GRAPH, epochs=EPOCHS, steps_per_epoch=STEPS, costs=costs)
    clients = [setup.client(i) for i in range(N)]
    X, read = start(workload), start(workload)

    def begin(i: int, c: int, X: np.ndarray) -> np.ndarray:
        read[:, i] = X[:, i]
        W = pair_matrix([(i, algorithm.partner(clients[i], c))])
        return np.asarray(X @ W)

    for i in range(N):
        X = begin(i, 1, X)
    ends = sorted((c * seconds[i], i, c) for i in range(N) for c in range(1, EPOCHS * STEPS + 1))
    for _, i, c in ends:
        X[:, i] -= STEP_SIZE * gradient(workload, read[:, i], i, c)
        if c < EPOCHS * STEPS:
            X = begin(i, c + 1, X)
    world = run_to_end(VirtualEngine(setup))
    np.testing.assert_allclose(np.stack(world.models, axis=1), X, rtol=0, atol=1e-12)
    assert max(world.seconds()["waiting"]) == 0


@pytest.mark.parametrize("averaging", ["after", "background"])
def test_virtual_adpsgd_keeps_the_mean_while_nothing_pulls(averaging: Averaging) -> None:
    """Pairs are averaged atomically however they overlap in time."""
    costs = Costs(latency=0.02, slowdowns=slow({0: 3.0, 5: 0.4}))
    setup, _, workload = quadratic_setup(
        AdPsgd(seed=2, averaging=averaging), GRAPH, epochs=20, costs=costs, noise=0.0
    )
    total = np.zeros(workload.parameters)
    engine = VirtualEngine(setup)
    engine.start()
    while not engine.over:
        before = np.sum(engine.models, axis=0)
        engine.advance(1)
        total += np.sum(engine.models, axis=0) - before
    np.testing.assert_allclose(np.sum(engine.models, axis=0), N * workload.initial(0) + total, atol=1e-9)
    assert engine.figures()["largest_delay"] >= N - 1


@pytest.mark.parametrize("engine", [VirtualEngine, SampledEngine])
@pytest.mark.parametrize("name", ["matcha", "gossip", "allreduce", "fedavg"])
def test_rounds(name: str, engine: type[VirtualEngine]) -> None:
    plan = matching_plan(GRAPH, 0.6)
    algorithms: dict[str, Any] = {
        "matcha": Matcha(plan, seed=5),
        "gossip": Gossip(GRAPH, seed=5),
        "allreduce": AllReduceSgd(),
        "fedavg": FedAvg(every(2)),
    }
    p = np.arange(1, N + 1) / np.arange(1, N + 1).sum()
    algorithm = algorithms[name]
    setup, _, workload = quadratic_setup(
        algorithm, GRAPH, p, epochs=EPOCHS, steps_per_epoch=STEPS, costs=Costs(slowdowns=slow({3: 5.0}))
    )

    def matrix(c: int) -> np.ndarray:
        if name == "matcha":
            rows = plan.partner[algorithm.active(c)]
            return pair_matrix([(i, int(k)) for row in rows for i, k in enumerate(row) if i < k], plan.alpha)
        if name == "gossip":
            return pair_matrix([(i, int(k)) for i, k in enumerate(algorithm.matching(c)) if i < k])
        return np.outer(p, np.ones(N)) if name == "allreduce" or c % 3 == 0 else np.eye(N)

    X = start(workload)
    for c in range(1, EPOCHS * STEPS + 1):
        X = (X - STEP_SIZE * gradients(workload, X, c)) @ matrix(c)
    world = run_to_end(engine(setup))
    np.testing.assert_allclose(np.stack(world.models, axis=1), X, rtol=0, atol=1e-12)
    if name == "gossip":
        assert (X.std(axis=1) > 1e-6).all()


def test_gossip_pairs_cover_the_graph() -> None:
    algorithm = Gossip(GRAPH, seed=1)
    met = {(i, int(k)) for c in range(200) for i, k in enumerate(algorithm.matching(c)) if i < k}
    assert met == {tuple(edge) for edge in GRAPH.edges.tolist()}
