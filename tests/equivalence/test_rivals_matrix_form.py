"""Sampled FedAvg, SwarmSGD, Prague, asynchronous gossip, quasi-global momentum: their matrix forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import swiftfl
from swiftfl.algorithms import AsyncGossip, FedAvg, Prague, QuasiGlobal, Swarm, WaitFreeQuasiGlobal, dsgd
from swiftfl.costs import Costs
from swiftfl.engines import SampledEngine, VirtualEngine
from swiftfl.errors import UserError
from swiftfl.rules import SgdRule
from swiftfl.sample import Batch
from swiftfl.schedule import every
from worlds import STEP_SIZE, quadratic_setup, run_to_end, skewed, slow

NOTHING = np.empty(0, dtype=np.int64)
GRAPH = swiftfl.ring_of_cliques(8, clusters=2)
N = GRAPH.n
EPOCHS, STEPS = 4, 5
COSTS = Costs(slowdowns=slow({3: 5.0, 6: 0.7}))


def start(workload: Any) -> np.ndarray:
    return np.tile(workload.initial(0)[:, None], (1, N))


def gradient(workload: Any, x: np.ndarray, i: int, c: int) -> np.ndarray:
    return np.asarray(workload.gradient(x.copy(), Batch(i, c, NOTHING)).g)


def gradients(workload: Any, X: np.ndarray, c: int) -> np.ndarray:
    return np.stack([gradient(workload, X[:, i], i, c) for i in range(N)], axis=1)


def pair(i: int, j: int) -> np.ndarray:
    e = np.eye(N)[:, i] - np.eye(N)[:, j]
    return np.asarray(np.eye(N) - 0.5 * np.outer(e, e))


def models(engine: Any) -> np.ndarray:
    return np.stack(run_to_end(engine).models, axis=1)


@pytest.mark.parametrize("engine", [VirtualEngine, SampledEngine])
def test_fedavg_with_sampled_clients(engine: type[VirtualEngine]) -> None:
    """McMahan's rounds: those drawn start from the server's model, the new one is their weighted mean."""
    algorithm = FedAvg(every(2), SgdRule(0.5), participation=0.4, clients=N, seed=3)
    p = skewed(N)
    setup, _, workload = quadratic_setup(algorithm, GRAPH, p, epochs=6, steps_per_epoch=STEPS, costs=COSTS)
    server = workload.initial(0)
    momentum = np.zeros((server.size, N))
    met = set()
    for closing in range(3, 6 * STEPS + 1, 3):
        drawn = sorted(algorithm.drawn(closing))
        assert len(drawn) == 3
        assert algorithm.drawn(closing - 2) == set(drawn)
        met |= set(drawn)
        results = []
        for i in drawn:
            x = server.copy()
            for c in range(closing - 2, closing + 1):
                momentum[:, i] = 0.5 * momentum[:, i] + gradient(workload, x, i, c)
                x = x - STEP_SIZE * momentum[:, i]
            results.append(x)
        server = np.stack(results, axis=1) @ (p[drawn] / p[drawn].sum())
    assert met == set(range(N))
    world = run_to_end(engine(setup))
    for x in world.models:
        np.testing.assert_allclose(x, server, rtol=0, atol=1e-12)
    uploads = [sum(i in algorithm.drawn(c) for c in range(3, 6 * STEPS + 1, 3)) for i in range(N)]
    assert [record.traffic.messages for record in world.world.records] == uploads


def test_the_server_takes_longer_for_more_uploads() -> None:
    def seconds(share: float) -> float:
        algorithm = FedAvg(every(0), participation=share, clients=N)
        costs = Costs(compute=0.0, latency=0.0, bandwidth=8.0)  # one number of a model per second
        setup, _, _ = quadratic_setup(algorithm, GRAPH, epochs=1, steps_per_epoch=1, costs=costs)
        return float(run_to_end(VirtualEngine(setup)).world.now)

    assert seconds(1.0) == pytest.approx(2 * N * 7)
    assert seconds(0.125) == pytest.approx(2 * 7)


@pytest.mark.parametrize("local_steps", [1, 3])
def test_sampled_swarm(local_steps: int) -> None:
    """X_{k+1} = X_k W_k + h_i e_i' at the meetings; h is H steps from the model of the last own meeting."""
    algorithm = Swarm(local_steps, SgdRule(0.6), seed=9)
    setup, _, workload = quadratic_setup(algorithm, GRAPH, iterations=240)
    draws = SampledEngine(setup)
    X, met, local = start(workload), start(workload), start(workload)
    momentum, counter = np.zeros_like(X), [1] * N
    for _ in range(240):
        i = draws.draw()
        momentum[:, i] = 0.6 * momentum[:, i] + gradient(workload, local[:, i], i, counter[i])
        local[:, i] -= STEP_SIZE * momentum[:, i]
        if counter[i] % local_steps == 0:
            X = X @ pair(i, algorithm.partner(setup.client(i), counter[i]))
            X[:, i] += local[:, i] - met[:, i]
            met[:, i] = local[:, i] = X[:, i]
        counter[i] += 1
    np.testing.assert_allclose(models(SampledEngine(setup)), X, rtol=0, atol=1e-12)


def test_a_meeting_in_the_middle_of_local_steps_is_not_undone() -> None:
    """Nothing pulls: the sum of all cells stays, although clients end steps between their own meetings."""
    costs = Costs(latency=0.02, slowdowns=slow({0: 3.0, 5: 0.4}))
    setup, _, workload = quadratic_setup(Swarm(4, seed=2), GRAPH, epochs=20, costs=costs, noise=0.0)
    engine = VirtualEngine(setup)
    engine.start()
    total = np.zeros(workload.parameters)
    moved = 0
    while not engine.over:
        before = np.stack(engine.models)
        engine.advance(1)
        after = np.stack(engine.models)
        changed = int((before != after).any(axis=1).sum())
        moved += changed >= 2
        total += (after - before).sum(axis=0)
    assert moved > 50
    np.testing.assert_allclose(np.sum(engine.models, axis=0), N * workload.initial(0) + total, atol=1e-9)


@pytest.mark.parametrize("engine", [VirtualEngine, SampledEngine])
@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_prague(size: int, engine: type[VirtualEngine]) -> None:
    algorithm = Prague(GRAPH, size, seed=5)
    setup, _, workload = quadratic_setup(algorithm, GRAPH, epochs=EPOCHS, steps_per_epoch=STEPS, costs=COSTS)
    X = start(workload)
    for c in range(1, EPOCHS * STEPS + 1):
        F = np.zeros((N, N))
        for group in algorithm.groups(c):
            F[np.ix_(group, group)] = 1 / len(group)
        np.testing.assert_allclose(F.sum(axis=0), 1)
        X = (X - STEP_SIZE * gradients(workload, X, c)) @ F
    np.testing.assert_allclose(models(engine(setup)), X, rtol=0, atol=1e-12)


def test_pragues_groups() -> None:
    """A division of the clients into cliques; uniform on a complete graph, pairs on a ring."""

    def together(graph: swiftfl.Topology, size: int, largest: int) -> np.ndarray:
        """How often each pair was in one group, of 400 rounds."""
        algorithm = Prague(graph, size, seed=1)
        count = np.zeros((graph.n, graph.n))
        for c in range(400):
            groups = algorithm.groups(c)
            assert sorted(i for group in groups for i in group) == list(range(graph.n))
            assert all(graph.has_edge(i, j) for group in groups for i in group for j in group if i < j)
            assert max(map(len, groups)) == largest
            for group in groups:
                count[np.ix_(group, group)] += 1
        met = {(i, j) for i, j in np.argwhere(count).tolist() if i < j}
        assert met == {tuple(edge) for edge in graph.edges.tolist()}
        return count

    together(GRAPH, 3, largest=3)
    together(swiftfl.ring(9), 4, largest=2)
    pairs = together(swiftfl.complete(10), 4, largest=4)[np.triu_indices(10, 1)] / 400
    # Groups of 4, 4 and 2: 13 of 45 pairs; five standard deviations of 400 draws are 0.113.
    np.testing.assert_allclose(pairs, 13 / 45, atol=0.113)


def test_sampled_asynchronous_gossip() -> None:
    algorithm = AsyncGossip(1.3, seed=9)
    setup, _, workload = quadratic_setup(algorithm, GRAPH, iterations=200)
    draws = SampledEngine(setup)
    X, read, counter, ticks = start(workload), start(workload), [1] * N, []
    for _ in range(200):
        i = draws.draw()
        g = gradient(workload, read[:, i], i, counter[i])
        partners = algorithm.partners(setup.client(i), counter[i])
        ticks.append(len(partners))
        for j in partners:
            X = X @ pair(i, j)
        X[:, i] -= STEP_SIZE * g
        read[:, i] = X[:, i]
        counter[i] += 1
    np.testing.assert_allclose(models(SampledEngine(setup)), X, rtol=0, atol=1e-12)
    assert ticks.count(0) > 20
    assert max(ticks) > 2


def test_ticks_are_those_of_a_poisson_clock() -> None:
    """Mean and variance are the rate; partners are uniform. Bounds are five standard deviations."""
    algorithm = AsyncGossip(1.5, seed=2)
    me = quadratic_setup(algorithm, swiftfl.ring(6))[0].client(2)
    drawn = [algorithm.partners(me, c) for c in range(4000)]
    counts = np.array([len(partners) for partners in drawn])
    assert abs(counts.mean() - 1.5) < 5 * np.sqrt(1.5 / 4000)
    assert abs(counts.var() - 1.5) < 0.25
    assert abs(np.mean([k == 1 for partners in drawn for k in partners]) - 0.5) < 0.035


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("engine", [VirtualEngine, SampledEngine])
def test_quasi_global_momentum(engine: type[VirtualEngine], nesterov: bool) -> None:
    mu, beta, decay = 0.9, 0.1, 0.01
    algorithm = QuasiGlobal(SgdRule(mu, decay, nesterov), beta)
    setup, coefficients, workload = quadratic_setup(
        algorithm, GRAPH, method="metropolis", epochs=EPOCHS, steps_per_epoch=STEPS, costs=COSTS
    )
    W = _matrix(coefficients)
    X, M = start(workload), np.zeros((workload.parameters, N))
    for c in range(1, EPOCHS * STEPS + 1):
        G = gradients(workload, X, c) + decay * X
        D = mu * M + G
        if nesterov:
            D = G + mu * D
        after = (X - STEP_SIZE * D) @ W
        M = (1 - beta) * M + beta * (X - after) / STEP_SIZE
        X = after
    np.testing.assert_allclose(models(engine(setup)), X, rtol=0, atol=1e-12)


def _matrix(coefficients: swiftfl.Coefficients) -> np.ndarray:
    W = np.zeros((N, N))
    for i in range(N):
        for j, w in coefficients.column(i).items():
            W[j, i] = w
    return W


def test_quasi_global_momentum_in_swifts_order_at_equal_speeds() -> None:
    """Lockstep: X W - step_size D with the models of the step before, which is average-then-update."""
    algorithm = WaitFreeQuasiGlobal(SgdRule(0.5), age=1.0)
    costs = Costs(send=0.0, mix=0.0)  # otherwise those with more neighbours are slower
    setup, coefficients, workload = quadratic_setup(
        algorithm, GRAPH, method="metropolis", epochs=EPOCHS, steps_per_epoch=STEPS, costs=costs
    )
    W, X = _matrix(coefficients), start(workload)
    M = np.zeros_like(X)
    for c in range(1, EPOCHS * STEPS + 1):
        after = X @ W - STEP_SIZE * (0.5 * M + gradients(workload, X, c))
        M = 0.9 * M + 0.1 * (X - after) / STEP_SIZE
        X = after
    np.testing.assert_allclose(models(VirtualEngine(setup)), X, rtol=0, atol=1e-12)


def test_quasi_global_momentum_is_refused_where_it_diverges() -> None:
    """(1 - w_ii)(1 - a) = 2/3 1/2 on a ring: above 1 - 0.9, below 1 - 0.6."""
    with pytest.raises(UserError, match=r"diverges for client 0: .* = 0\.33 is above 1 - momentum = 0\.10"):
        quadratic_setup(WaitFreeQuasiGlobal(SgdRule(0.9)), swiftfl.ring(6), method="metropolis")
    quadratic_setup(WaitFreeQuasiGlobal(SgdRule(0.6)), swiftfl.ring(6), method="metropolis")
    with pytest.raises(UserError, match="needs --rule sgd with a momentum above 0"):
        QuasiGlobal(SgdRule())


def test_reductions() -> None:
    """FedAvg with everybody drawn is FedAvg, bit for bit; quasi-global momentum without momentum is D-SGD."""

    def of(algorithm: Any) -> np.ndarray:
        return models(VirtualEngine(quadratic_setup(algorithm, GRAPH, method="metropolis", epochs=3)[0]))

    everybody = FedAvg(every(2), participation=1.0, clients=N, seed=3)
    assert (of(everybody) == of(FedAvg(every(2)))).all()
    np.testing.assert_allclose(of(QuasiGlobal(SgdRule(1e-14))), of(dsgd()), atol=1e-11)
