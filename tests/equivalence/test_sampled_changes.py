"""Lines 4-5 of Algorithm 1 in the sampled engine: the matrix recursion with W renewed at the planned t."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import swiftfl
from swiftfl.algorithms import AdPsgd, Swift, dsgd
from swiftfl.engines import SampledEngine
from swiftfl.engines.dynamics import Change, Dynamics, Kind, Rates
from swiftfl.engines.membership import Membership
from swiftfl.errors import UserError
from swiftfl.graph import Topology, communication_coefficients
from swiftfl.sample import Batch
from swiftfl.schedule import every
from worlds import STEP_SIZE, quadratic_setup, resumed, run_to_end, skewed, steps

NOTHING = np.empty(0, dtype=np.int64)
GRAPH = swiftfl.ring_of_cliques(8, clusters=2)
T = 400
EDGE = tuple(GRAPH.edges[3].tolist())


def at(iteration: int, kind: Kind, client: int = -1, edge: Any = None) -> Change:
    return Change(None, kind, client, edge, iteration=iteration)


CHANGES = [
    at(60, "edge_down", edge=EDGE),
    at(110, "join", 5),
    at(170, "leave", 2),
    at(171, "edge_up", edge=(0, 6)),
    at(230, "edge_up", edge=EDGE),
    at(300, "return", 2),
]


def setup_of(algorithm: Any, p: np.ndarray | None, changes: list[Change] = CHANGES, **options: Any) -> Any:
    dynamics = Dynamics(tuple(changes))
    influence = communication_coefficients(GRAPH, p, "ccs").influence.tolist()
    options.setdefault("iterations", T)
    return quadratic_setup(
        algorithm,
        GRAPH,
        p,
        network=lambda: Membership(GRAPH, influence, "ccs", dynamics, 5),
        **options,
    )


class Network:
    """Written anew: who is there, which edges exist, and W_i on each component."""

    def __init__(self, p: np.ndarray) -> None:
        self.p = p
        self.edges = {tuple(sorted(edge)) for edge in GRAPH.edges.tolist()}
        self.there = set(range(GRAPH.n)) - {5}
        self.renew()

    def renew(self) -> None:
        n = GRAPH.n
        self.W = [np.eye(n) for _ in range(n)]
        left = {edge for edge in self.edges if self.there.issuperset(edge)}
        parts: list[set[int]] = [{i} for i in self.there]
        for edge in left:
            joined = [part for part in parts if part.intersection(edge)]
            parts = [part for part in parts if part not in joined] + [set().union(*joined)]
        for part in parts:
            members = sorted(part)
            if len(members) == 1:
                continue
            inside = [(members.index(i), members.index(j)) for i, j in left if i in part]
            found = communication_coefficients(
                Topology(len(members), inside), self.p[members] / self.p[members].sum(), "ccs"
            )
            assert found.report().violation is None  # conditions (a)-(d)
            for k, i in enumerate(members):
                self.W[i][np.ix_(members, [i])] = found.active_matrix(k)[:, [k]]

    def apply(self, change: Change, X: np.ndarray, counters: list[int]) -> None:
        if change.kind == "leave":
            self.there.discard(change.client)
        elif change.kind in ("join", "return"):
            near = [k for edge in self.edges if change.client in edge for k in edge if k in self.there]
            source = max(near, key=lambda k: (counters[k], -k))
            X[:, change.client] = X[:, source]
            self.there.add(change.client)
        else:
            assert change.edge is not None
            edge = tuple(sorted(change.edge))
            (self.edges.add if change.kind == "edge_up" else self.edges.discard)(edge)
        self.renew()


@pytest.mark.parametrize("s", [0, 2])
@pytest.mark.parametrize("influence", ["uniform", "skewed"])
def test_sampled_swift_is_the_matrix_recursion_with_w_renewed_at_each_change(s: int, influence: str) -> None:
    n = GRAPH.n
    p = skewed(n) if influence == "skewed" else None
    setup, coefficients, workload = setup_of(Swift(every(s)), p)

    draws, network = SampledEngine(setup), Network(coefficients.influence)
    X = np.tile(workload.initial(setup.seed)[:, None], (1, n))
    counters = [1] * n
    waiting = list(CHANGES)
    for t in range(T):
        while waiting and waiting[0].iteration == t:
            network.apply(waiting.pop(0), X, counters)
        i = draws.draw()
        while i not in network.there:
            i = draws.draw()
        G = np.zeros_like(X)
        G[:, i] = workload.gradient(X[:, i].copy(), Batch(i, counters[i], NOTHING)).g
        X = X @ (network.W[i] if counters[i] % (s + 1) == 0 else np.eye(n)) - STEP_SIZE * G
        counters[i] += 1

    engine = run_to_end(SampledEngine(setup))
    assert engine.iteration == T
    assert engine.figures()["renewals"] == len(CHANGES) + 1  # and one for whoever is not there at first
    assert [row["iteration"] for row in engine.world.log.rows if row["event"] == "renew"] == [
        change.iteration for change in CHANGES
    ]
    np.testing.assert_allclose(np.stack(engine.models, axis=1), X, rtol=0, atol=1e-12)


@pytest.mark.parametrize("algorithm", [Swift(every(1)), dsgd(), AdPsgd()], ids=lambda a: a.name)
def test_a_pause_at_or_between_changes_changes_nothing(algorithm: Any) -> None:
    setup, _, _ = setup_of(algorithm, skewed(GRAPH.n))
    current = SampledEngine(setup)
    current.start()
    for pause in (59, 60, 61, 110, 150, 170, 171, 172, 231, 299, 300, 301):
        current.advance(pause - current.iteration)
        current = resumed(current, SampledEngine(setup))
    current.advance(10**9)
    whole = run_to_end(SampledEngine(setup))
    assert steps(current) == steps(whole)
    assert current.figures() == whole.figures()
    assert current.world.log.rows == whole.world.log.rows
    assert all((x == y).all() for x, y in zip(current.models, whole.models, strict=True))


def test_clients_in_rounds_switch_at_one_round_and_go_on() -> None:
    setup, _, _ = setup_of(dsgd(), None, epochs=40, iterations=None)
    engine = run_to_end(SampledEngine(setup))
    assert engine.over
    assert [record.finished for record in engine.world.records] == [True] * GRAPH.n
    weights = [record.client.w for record in engine.world.records]
    assert all(
        weights[k].of[i] == pytest.approx(value) for i, w in enumerate(weights) for k, value in w.of.items()
    )


def test_when_everybody_has_left_the_run_is_over() -> None:
    gone = [at(20, "leave", i) for i in range(GRAPH.n)]
    setup, _, _ = setup_of(Swift(), None, [*gone, at(30, "return", 0)])
    engine = run_to_end(SampledEngine(setup))
    assert engine.over
    assert engine.iteration == 20


@pytest.mark.parametrize(
    ("dynamics", "message"),
    [
        (
            Dynamics([Change(0.5, "leave", 1)]),
            "leave at time 0.5: engine sampled has no clock; give it an iter",
        ),
        (Dynamics([at(5, "crash", 1)]), "crash of client 1: engine sampled has no clock"),
        (Dynamics(rates=Rates(crash=1.0)), "rates of a network that changes: engine sampled has no clock"),
        (Dynamics(renewal=0.2), "renewal of a network that changes"),
        (Dynamics(measured=True), "measured of a network that changes"),
    ],
)
def test_what_needs_a_clock_is_refused(dynamics: Dynamics, message: str) -> None:
    p = [1 / GRAPH.n] * GRAPH.n
    setup, _, _ = quadratic_setup(Swift(), GRAPH, network=lambda: Membership(GRAPH, p, "ccs", dynamics, 0))
    with pytest.raises(UserError, match=message):
        SampledEngine(setup)
