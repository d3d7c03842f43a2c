"""A2CiD2, DivShare, Soft-DSGD, HOGWILD! and AsySG-Con against their matrix or shared-memory forms."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import swiftfl
from swiftfl.algorithms import A2cid2, AsyncGossip, DivShare, SharedModel, SoftDsgd, dsgd
from swiftfl.costs import Costs
from swiftfl.engines import SampledEngine, VirtualEngine
from swiftfl.errors import UserError
from swiftfl.graph.acceleration import acceleration
from swiftfl.rules import SgdRule
from swiftfl.sample import Batch, Slope
from swiftfl.transports.codec import Identity, Measured
from worlds import STEP_SIZE, quadratic_setup, resumed, run_to_end, slow

NOTHING = np.empty(0, dtype=np.int64)
GRAPH = swiftfl.ring_of_cliques(8, clusters=2)
N = GRAPH.n


def start(workload: Any) -> np.ndarray:
    return np.tile(workload.initial(0)[:, None], (1, N))


def gradient(workload: Any, x: np.ndarray, i: int, c: int) -> np.ndarray:
    return np.asarray(workload.gradient(x.copy(), Batch(i, c, NOTHING)).g)


def models(engine: Any) -> np.ndarray:
    return np.stack(run_to_end(engine).models, axis=1)


# --- A2CiD2 ------------------------------------------------------------------------------------


def test_sampled_a2cid2_is_its_shared_memory_form() -> None:
    """Every averaging moves both momenta at once, and time passes by the matrix exponential."""
    pace = acceleration(GRAPH, 1.4)
    algorithm = A2cid2(pace, 1.4, SgdRule(0.3), seed=9)
    setup, _, workload = quadratic_setup(algorithm, GRAPH, iterations=200)
    draws = SampledEngine(setup)
    X, Y, read = start(workload), start(workload), start(workload)
    M, counter, met = np.zeros_like(X), [1] * N, 0

    def relax(i: int, seconds: float) -> None:
        flow = scipy.linalg.expm(seconds * pace.eta * np.array([[-1.0, 1.0], [1.0, -1.0]]))
        X[:, i], Y[:, i] = flow @ np.stack((X[:, i], Y[:, i]))

    for _ in range(200):
        i = draws.draw()
        now = 0.0
        for when, j in algorithm.meetings(setup.client(i), counter[i]):
            relax(i, when - now)
            gap = X[:, j] - X[:, i]
            X[:, i] += 0.5 * gap
            X[:, j] -= 0.5 * gap
            Y[:, i] += pace.alpha * gap
            Y[:, j] -= pace.alpha * gap
            now, met = when, met + 1
        relax(i, 1.0 - now)
        M[:, i] = 0.3 * M[:, i] + gradient(workload, read[:, i], i, counter[i])
        X[:, i] -= STEP_SIZE * M[:, i]
        Y[:, i] -= STEP_SIZE * M[:, i]
        read[:, i] = X[:, i]
        counter[i] += 1
    assert met > 100
    assert np.abs(X - Y).max() > 0.01
    np.testing.assert_allclose(models(SampledEngine(setup)), X, rtol=0, atol=1e-11)


def test_without_momentum_a2cid2_is_asynchronous_gossip_with_other_draws() -> None:
    gossip, plain = AsyncGossip(0.5), A2cid2(None, 1.0)
    object.__setattr__(plain, "meetings", lambda me, c: [(0.5, k) for k in gossip.partners(me, c)])
    of = [models(SampledEngine(quadratic_setup(a, GRAPH)[0])) for a in (gossip, plain)]
    np.testing.assert_allclose(of[1], of[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("graph", [swiftfl.ring(9), swiftfl.complete(7), GRAPH, swiftfl.path(5)])
def test_the_constants_against_their_definitions(graph: swiftfl.Topology) -> None:
    """With SciPy's pseudo-inverse, from the rates at which pairs meet."""
    L = np.zeros((graph.n, graph.n))
    for i in range(graph.n):
        for j in graph.neighbours(i):
            rate = 0.5 * 1.7 * (1 / graph.degree(i) + 1 / graph.degree(j))
            L[i, j] -= rate
            L[i, i] += rate
    inverse = scipy.linalg.pinv(L)
    chi2 = max(0.5 * (inverse[i, i] + inverse[j, j] - 2 * inverse[i, j]) for i, j in graph.edges.tolist())
    found = acceleration(graph, 1.7)
    assert found.chi1 == pytest.approx(1 / sorted(scipy.linalg.eigvalsh(L))[1])
    assert found.chi2 == pytest.approx(chi2)
    assert found.chi2 <= found.chi1 * (1 + 1e-12)
    assert (found.eta, found.alpha) == pytest.approx(
        (0.5 / math.sqrt(found.chi1 * chi2), 0.5 * math.sqrt(found.chi1 / chi2))
    )


class Wave:
    """The first step puts the clients of a ring of 16 onto a wave around it; after that nothing pulls."""

    name = "wave"
    parameters, buffers = 3, 0

    def initial(self, seed: int) -> np.ndarray:
        return np.zeros(3)

    def gradients(self, xs: Any, batches: list[Batch]) -> list[Slope]:
        heights = [math.cos(2 * math.pi * b.client / 16) if b.counter == 1 else 0.0 for b in batches]
        return [Slope(np.full(3, -height / STEP_SIZE), 0.0) for height in heights]


def test_with_the_same_averagings_the_momentum_brings_a_ring_together_sooner() -> None:
    """The slowest wave takes a time of chi1 without, 13, and of about sqrt(chi1 chi2) with it, 3.5."""
    ring = swiftfl.ring(16)

    def apart(algorithm: A2cid2) -> float:
        setup, _, _ = quadratic_setup(algorithm, ring, method="metropolis", iterations=16 * 40)
        object.__setattr__(setup, "workload", Wave())
        X = np.stack(run_to_end(VirtualEngine(setup)).models)
        return float(np.abs(X - X.mean(axis=0)).max())

    for seed in range(3):
        assert apart(A2cid2(acceleration(ring, 1.0), seed=seed)) < 0.2 * apart(A2cid2(None, seed=seed))


# --- DivShare ----------------------------------------------------------------------------------


def test_sampled_divshare_is_its_shared_memory_form() -> None:
    """Boxes hold the newest fragment of each sender; whoever acts sends, and then empties its own box."""
    algorithm = DivShare(3, 2, 2, SgdRule(0.4), seed=5)
    setup, _, workload = quadratic_setup(algorithm, GRAPH, iterations=300)
    draws = SampledEngine(setup)
    X, M, counter = start(workload), np.zeros((workload.parameters, N)), [1] * N
    boxes: list[dict[tuple[int, int], np.ndarray]] = [{} for _ in range(N)]
    replaced = 0
    for _ in range(300):
        i = draws.draw()
        c, counter[i] = counter[i], counter[i] + 1
        M[:, i] = 0.4 * M[:, i] + gradient(workload, X[:, i], i, c)
        X[:, i] -= STEP_SIZE * M[:, i]
        if c % 2:
            continue
        for fragment, to in enumerate(algorithm.drawn(setup.client(i), c)):
            assert len(to) == 2
            for k in to:
                replaced += (i, fragment) in boxes[k]
                boxes[k][i, fragment] = X[fragment::3, i].copy()
        total, count = X[:, i].copy(), np.ones(workload.parameters)
        for (_, fragment), values in boxes[i].items():
            total[fragment::3] += values
            count[fragment::3] += 1
        X[:, i] = total / count
        boxes[i].clear()
    assert replaced > 20
    np.testing.assert_allclose(models(SampledEngine(setup)), X, rtol=0, atol=1e-12)


FAR = Costs(latency=0.03, jitter=0.05, loss=0.3, slowdowns=slow({0: 4.0, 5: 0.3}))


def test_fragments_on_their_way_survive_a_checkpoint() -> None:
    def world() -> VirtualEngine:
        return VirtualEngine(quadratic_setup(DivShare(4, 2, 1, SgdRule(0.5)), GRAPH, epochs=8, costs=FAR)[0])

    paused = world()
    paused.start()
    paused.advance(77)
    assert paused.world.fragments._boxes[0]
    going_on = resumed(paused, world())
    going_on.advance(10**9)
    whole = run_to_end(world())
    assert (np.stack(going_on.models) == np.stack(whole.models)).all()
    assert max(whole.seconds()["waiting"]) == 0


def test_a_fragment_is_smaller_and_faster_than_a_model() -> None:
    """Seven numbers in three fragments: 3, 2 and 2 of them. One second per number on the link."""
    costs = Costs(compute=1.0, send=0.0, mix=0.0, latency=0.0, bandwidth=8.0)
    pair = swiftfl.from_edges([(0, 1)])
    setup, _, _ = quadratic_setup(DivShare(3, 1), pair, epochs=1, steps_per_epoch=1, costs=costs)
    engine = run_to_end(VirtualEngine(setup))
    assert engine.figures()["communication"] == {"rounds": [0, 0], "messages": [3, 3], "bytes": [56, 56]}
    boxes = engine.world.fragments._boxes
    assert {kind: [p.arrives for p in pieces] for kind, pieces in boxes[1].items()} == {
        (0, 0, 3): [4.0], (0, 1, 3): [3.0], (0, 2, 3): [3.0],
    }  # fmt: skip
    assert engine.world.fragments.gather(1, engine.models[1], 3.5)[1].tolist() == [0, 1, 1, 0, 1, 1, 0]


# --- Soft-DSGD ---------------------------------------------------------------------------------


def test_softdsgd_is_dsgd_over_the_packets_that_arrive() -> None:
    costs = Costs(loss=0.4, slowdowns=slow({2: 3.0}), seed=6)
    setup, coefficients, workload = quadratic_setup(
        SoftDsgd(packet=3), GRAPH, method="metropolis", epochs=4, costs=costs
    )
    X = start(workload)
    lost = 0
    for c in range(1, 21):
        G = np.stack([gradient(workload, X[:, i], i, c) for i in range(N)], axis=1)
        half = X - STEP_SIZE * G
        X = half.copy()
        for i in range(N):
            for j in GRAPH.neighbours(i):
                gone = costs.lost_packets(j, i, c, 3)  # seven numbers: packets of 3, 3 and 1
                lost += int(gone.sum())
                there = ~np.repeat(gone, 3)[:7]
                X[there, i] += coefficients.column(i)[j] * (half[:, j] - half[:, i])[there]
    assert 0.35 < lost / (20 * 3 * 2 * GRAPH.m) < 0.45
    np.testing.assert_allclose(models(VirtualEngine(setup)), X, rtol=0, atol=1e-12)


def test_without_losses_softdsgd_is_dsgd() -> None:
    of = [
        models(VirtualEngine(quadratic_setup(a, GRAPH, method="metropolis", costs=Costs(jitter=0.01))[0]))
        for a in (SoftDsgd(packet=2), dsgd())
    ]
    assert (of[0] == of[1]).all()


# --- one model for all -------------------------------------------------------------------------


@pytest.mark.parametrize("together", [1, 3])
def test_sampled_shared_model(together: int) -> None:
    """x_{k+1} = x_k - step_size g, or a sum of g, each taken at the x of when its client wrote last."""
    setup, _, workload = quadratic_setup(SharedModel(together, SgdRule(0.5)), GRAPH, iterations=200)
    draws = SampledEngine(setup)
    x = workload.initial(0)
    read, momentum = start(workload), np.zeros((x.size, N))
    counter, read_at, delays = [1] * N, [0] * N, []
    collected: list[np.ndarray] = []
    for k in range(200):
        i = draws.draw()
        momentum[:, i] = 0.5 * momentum[:, i] + gradient(workload, read[:, i], i, counter[i])
        collected.append(STEP_SIZE * momentum[:, i])
        if len(collected) == together:
            x = x - np.sum(collected, axis=0)
            collected.clear()
        delays.append(k - read_at[i])
        counter[i] += 1
        read[:, i], read_at[i] = x, k + 1
    engine = run_to_end(SampledEngine(setup))
    views = read.copy()
    views[:, 0] = x  # client 0 holds the model
    np.testing.assert_allclose(np.stack(engine.models, axis=1), views, rtol=0, atol=1e-12)
    assert engine.figures()["largest_delay"] == max(delays)


def test_nobody_waits_for_a_slow_client_of_a_shared_model() -> None:
    costs = Costs(latency=0.001, slowdowns=slow({3: 20.0}))
    setup, _, _ = quadratic_setup(SharedModel(), GRAPH, epochs=4, costs=costs)
    engine = run_to_end(VirtualEngine(setup))
    assert max(engine.seconds()["waiting"]) == 0
    traffic = engine.figures()["communication"]
    others = N - 1
    assert traffic["messages"] == [20 * others, *[20] * others]  # models from client 0, moves of the others
    assert traffic["rounds"] == [0, *[20] * others]


def test_moves_that_wait_for_others_survive_a_checkpoint() -> None:
    def world() -> SampledEngine:
        return SampledEngine(quadratic_setup(SharedModel(7), GRAPH, epochs=6)[0])

    paused = world()
    paused.start()
    paused.advance(38)
    assert paused.world.cells._collected[0][1] == 38 % 7
    going_on = resumed(paused, world())
    going_on.advance(10**9)
    assert (np.stack(going_on.models) == np.stack(run_to_end(world()).models)).all()


def test_codecs_are_refused_where_no_models_are_sent() -> None:
    setup, _, _ = quadratic_setup(DivShare(), GRAPH, codec=partial(Measured, Identity()))
    with pytest.raises(UserError, match="divshare does not send models"):
        VirtualEngine(setup)
