"""Push-sum: SGP against its matrix form, its overlapped form against a shared-memory one; no mass is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import swiftfl
from swiftfl.algorithms import OverlappedSgp, Sgp
from swiftfl.costs import Costs
from swiftfl.engines import SampledEngine, VirtualEngine
from swiftfl.errors import UserError
from swiftfl.graph.directed import Directed, Direction, directed
from swiftfl.rules import SgdRule
from swiftfl.sample import Batch, Slope
from swiftfl.vector import narrow, wide
from worlds import STEP_SIZE, quadratic_setup, resumed, run_to_end, slow

NOTHING = np.empty(0, dtype=np.int64)
GRAPH = swiftfl.ring_of_cliques(9, clusters=3)
N = GRAPH.n
DIRECTIONS: tuple[Direction, ...] = ("both", "one_way")


def push_matrix(graph: Directed) -> np.ndarray:
    """Column j: what becomes of j's mass."""
    P = np.zeros((N, N))
    for j, out in enumerate(graph.out):
        P[[j, *out], j] = 1 / (1 + len(out))
    return P


def gradient(workload: Any, x: np.ndarray, i: int, c: int) -> np.ndarray:
    return np.asarray(workload.gradient(x.copy(), Batch(i, c, NOTHING)).g)


@pytest.mark.parametrize("engine", [VirtualEngine, SampledEngine])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_synchronous_sgp_is_its_matrix_form(direction: Direction, engine: type[VirtualEngine]) -> None:
    """X' = (X - step_size G(Z)) P^T, w' = P w, Z = X / w; one way the rows of P do not add up to one."""
    graph = directed(GRAPH, direction)
    P = push_matrix(graph)
    np.testing.assert_allclose(P.sum(axis=0), 1)
    assert np.ptp(P.sum(axis=1)) > 0.1
    setup, _, workload = quadratic_setup(
        Sgp(graph, SgdRule(0.5)), GRAPH, epochs=4, costs=Costs(slowdowns=slow({3: 5.0}))
    )
    X, w = np.tile(workload.initial(0)[:, None], (1, N)), np.ones(N)
    M = np.zeros_like(X)
    least = 1.0
    for c in range(1, 21):
        Z = X / w
        M = 0.5 * M + np.stack([gradient(workload, Z[:, i], i, c) for i in range(N)], axis=1)
        sending = (w >= 0.5).astype(float)  # whoever has little keeps it
        step = P * sending + np.diag(1 - sending)
        X, w = (X - STEP_SIZE * M) @ step.T, step @ w
        least = min(least, w.min())
    assert least < 0.9
    world = run_to_end(engine(setup))
    np.testing.assert_allclose(np.stack(world.models, axis=1), X / w, rtol=0, atol=1e-11)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_sampled_overlapped_sgp_is_its_shared_memory_form(direction: Direction) -> None:
    """Whoever acts pushes its shares into the others' boxes, and empties its own."""
    graph = directed(GRAPH, direction)
    setup, _, workload = quadratic_setup(OverlappedSgp(graph), GRAPH, iterations=300)
    draws = SampledEngine(setup)
    mass = [np.append(workload.initial(0), 1.0) for _ in range(N)]
    box = [np.zeros(workload.parameters + 1) for _ in range(N)]
    counter = [1] * N
    for _ in range(300):
        i = draws.draw()
        z = mass[i][:-1] / mass[i][-1]
        mass[i][:-1] -= STEP_SIZE * gradient(workload, z, i, counter[i])
        if mass[i][-1] >= 0.5:
            share = mass[i] / (1 + len(graph.out[i]))
            for k in graph.out[i]:
                box[k] += share
                mass[i] = mass[i] - share
        mass[i], box[i] = mass[i] + box[i], np.zeros_like(box[i])
        counter[i] += 1
    models = run_to_end(SampledEngine(setup)).models
    np.testing.assert_allclose(np.stack(models), [m[:-1] / m[-1] for m in mass], rtol=0, atol=1e-9)


class Still:
    """Clients move once, each to a place of its own; after that nothing pulls."""

    name = "still"
    buffers = 0

    def __init__(self, dtype: type = np.float64, size: int = 5) -> None:
        self.dtype, self.parameters = dtype, size

    def initial(self, seed: int) -> np.ndarray:
        return np.ones(self.parameters, dtype=self.dtype)

    def gradients(self, xs: Any, batches: list[Batch]) -> list[Slope]:
        pull = [np.full(self.parameters, float(b.client if b.counter == 1 else 0)) for b in batches]
        return [Slope((-x / STEP_SIZE).astype(self.dtype), 0.0) for x in pull]


def masses(engine: Any, graph: Directed) -> np.ndarray:
    """All mass there is: the clients', and what was sent and not seen yet."""
    total = np.zeros(engine.models[0].size + 1)
    for record in engine.world.records:
        memory, x = record.start.memory, record.model
        total += wide(memory["mass"], x)
        for position, j in enumerate(graph.into[record.index]):
            sent = engine.world.records[j].start.memory["sent"]
            seen = memory["seen"][position * sent.size : (position + 1) * sent.size]
            total += wide(sent, x) - wide(seen, x)
    return total


LOSSY = Costs(latency=0.02, jitter=0.05, loss=0.4, slowdowns=slow({0: 4.0, 5: 0.3}))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_no_mass_is_lost_by_loss_delay_and_unequal_speeds(direction: Direction, dtype: type) -> None:
    """After every step the sum is that of the start, to 1e-12: also where four of ten messages are lost."""
    graph = directed(GRAPH, direction)
    setup, _, _ = quadratic_setup(OverlappedSgp(graph), GRAPH, iterations=N * 300, costs=LOSSY)
    object.__setattr__(setup, "workload", Still(dtype))
    engine = VirtualEngine(setup)
    engine.start()
    engine.advance(10 * N)
    began = [record.steps for record in engine.world.records]
    assert min(began) >= 1  # everybody has moved to its place
    expected = np.array([N + sum(range(N))] * 5 + [N], dtype=float)
    in_flight = 0
    for _ in range(100):
        engine.advance(3)
        np.testing.assert_allclose(masses(engine, graph), expected, rtol=1e-12)
        own = sum(wide(r.start.memory["mass"], r.model)[-1] for r in engine.world.records)
        in_flight += own < 0.9 * N
    assert in_flight > 10  # there was something to lose
    engine.advance(10**9)
    for x in engine.models:  # and all agree on the mean
        np.testing.assert_allclose(x, 1 + np.mean(range(N)), rtol=0.01)


def test_a_checkpoint_of_messages_that_are_no_models() -> None:
    graph = directed(GRAPH, "one_way")

    def world() -> VirtualEngine:
        return VirtualEngine(
            quadratic_setup(OverlappedSgp(graph, SgdRule(0.5)), GRAPH, epochs=6, costs=LOSSY)[0]
        )

    paused = world()
    paused.start()
    paused.advance(77)
    going_on = resumed(paused, world())
    going_on.advance(10**9)
    for mine, theirs in zip(going_on.models, run_to_end(world()).models, strict=True):
        assert (mine == theirs).all()


def test_messages_are_counted_as_they_are() -> None:
    graph = directed(swiftfl.ring(6), "one_way")
    setup, _, _ = quadratic_setup(OverlappedSgp(graph), swiftfl.ring(6), epochs=2)
    traffic = run_to_end(VirtualEngine(setup)).figures()["communication"]
    assert traffic["messages"] == [10] * 6
    assert traffic["bytes"] == [10 * 8 * 8] * 6  # seven numbers and the weight
    assert narrow(np.ones(8), np.dtype(np.float32)).nbytes == 8 * 8


@pytest.mark.parametrize(
    "graph", [swiftfl.ring(5), swiftfl.complete(6), swiftfl.exponential(9), swiftfl.torus(3, 4), GRAPH]
)
def test_one_way_every_client_can_reach_every_other(graph: swiftfl.Topology) -> None:
    view = directed(graph, "one_way")
    arcs = {(i, k) for i, out in enumerate(view.out) for k in out}
    assert arcs == {(k, i) for i, into in enumerate(view.into) for k in into}
    assert {(min(arc), max(arc)) for arc in arcs} == {tuple(edge) for edge in graph.edges.tolist()}
    assert len(arcs) == graph.m
    reached = np.eye(graph.n, dtype=bool)
    for _ in range(graph.n):
        for i, k in arcs:
            reached[k] |= reached[i]
    assert reached.all()


def test_a_bridge_cannot_be_one_way() -> None:
    with pytest.raises(UserError, match="between clients 2 and 3 is the only one"):
        directed(swiftfl.from_edges([(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (4, 5), (3, 5)]), "one_way")
