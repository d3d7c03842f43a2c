"""Topologies: what each generator gives, and what each bad request is told."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import networkx
import numpy as np
import pytest

import swiftfl as s
from swiftfl.errors import UserError
from swiftfl.graph.registry import TOPOLOGIES

SHAPES: list[tuple[s.Topology, int, int, int]] = [
    (s.ring(1), 1, 0, 0),
    (s.ring(2), 2, 1, 1),
    (s.ring(5), 5, 5, 2),
    (s.path(1), 1, 0, 0),
    (s.path(4), 4, 3, 2),
    (s.complete(1), 1, 0, 0),
    (s.complete(6), 6, 15, 5),
    (s.star(1), 1, 0, 0),
    (s.star(6), 6, 5, 5),
    (s.grid(3, 4), 12, 17, 4),
    (s.torus(3, 4), 12, 24, 4),
    (s.torus(2, 2), 4, 4, 2),
    (s.torus(1, 5), 5, 5, 2),
    (s.hypercube(1), 1, 0, 0),
    (s.hypercube(8), 8, 12, 3),
    (s.exponential(1), 1, 0, 0),
    (s.exponential(8), 8, 20, 5),
    (s.ring_of_cliques(16, 2), 16, 57, 8),
    (s.ring_of_cliques(16, 4), 16, 28, 4),
    (s.ring_of_cliques(10, 3), 10, 15, 4),
    (s.ring_of_cliques(5, 1), 5, 10, 4),
    (s.ring_of_cliques(5, 5), 5, 5, 2),
    (s.random_regular(20, 3), 20, 30, 3),
    (s.random_regular(6, 4), 6, 12, 4),
    (s.random_regular(7, 2), 7, 7, 2),
    (s.random_regular(2, 1), 2, 1, 1),
]


@pytest.mark.parametrize(("t", "n", "m", "largest"), SHAPES)
def test_shapes(t: s.Topology, n: int, m: int, largest: int) -> None:
    assert (t.n, t.m, int(t.degrees.max())) == (n, m, largest)
    assert t.is_connected
    assert t.require_connected() is t


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (s.ring(7), networkx.cycle_graph(7)),
        (s.complete(5), networkx.complete_graph(5)),
        (s.star(5), networkx.star_graph(4)),
        (s.path(5), networkx.path_graph(5)),
        (s.grid(3, 5), networkx.grid_2d_graph(3, 5)),
        (s.torus(3, 5), networkx.grid_2d_graph(3, 5, periodic=True)),
        (s.hypercube(16), networkx.hypercube_graph(4)),
    ],
)
def test_agrees_with_networkx(ours: s.Topology, theirs: networkx.Graph) -> None:
    graph = networkx.Graph(ours.edges.tolist())
    assert networkx.is_isomorphic(graph, theirs)


def test_bridges_of_ring_of_cliques() -> None:
    t = s.ring_of_cliques(10, 3)
    assert [e for e in [(2, 3), (5, 6), (0, 9)] if t.has_edge(*e)] == [(2, 3), (5, 6), (0, 9)]
    assert not s.ring_of_cliques(10, 2).has_edge(0, 9)


def test_arrays_are_sorted_consistent_and_read_only() -> None:
    t = s.Topology(5, [(4, 0), (2, 1), (0, 4), (1, 0), (3, 4)])
    assert t.edges.tolist() == [[0, 1], [0, 4], [1, 2], [3, 4]]
    assert t.neighbours(0) == (1, 4)
    assert t.neighbours(4) == (0, 3)
    row = np.repeat(np.arange(5), t.degrees)
    for i, j, e in zip(row, t.indices, t.edge_ids, strict=True):
        assert t.edges[e].tolist() == sorted([i, j])
    for array in (t.edges, t.indices, t.indptr, t.edge_ids, t.degrees, t.components):
        with pytest.raises(ValueError, match="read-only"):
            array[..., 0] = 1


def test_equality_hash_pickle() -> None:
    a, b = s.ring(6), s.Topology(6, s.ring(6).edges[::-1, ::-1])
    assert a == b
    assert hash(a) == hash(b)
    assert a != s.path(6)
    assert a != s.Topology(7, a.edges)
    back = pickle.loads(pickle.dumps(a))
    assert back == a
    assert not back.edges.flags.writeable


def test_churn_helpers() -> None:
    t = s.ring(6).without([2])
    assert t.degree(2) == 0
    assert not t.is_connected
    with pytest.raises(UserError, match="client 2 cannot be reached from client 0"):
        t.require_connected()
    assert t.with_edges([(1, 2), (2, 3)]) == s.ring(6)
    grown = s.ring(3).with_edges([(3, 0)], n=4)
    assert grown.neighbours(0) == (1, 2, 3)
    part, old = s.ring(6).subgraph([5, 0, 1])
    assert old == (0, 1, 5)
    assert part.edges.tolist() == [[0, 1], [0, 2]]


def test_from_networkx_keeps_numbers_or_numbers_in_order() -> None:
    numbered = networkx.Graph([(2, 0), (0, 1)])
    assert s.from_networkx(numbered).edges.tolist() == [[0, 1], [0, 2]]
    named = networkx.Graph([("b", "a"), ("a", "c")])
    assert s.from_networkx(named).edges.tolist() == [[0, 1], [1, 2]]


RANDOM: list[Callable[[int], s.Topology]] = [
    lambda seed: s.erdos_renyi(40, 0.15, seed),
    lambda seed: s.random_regular(30, 4, seed),
    lambda seed: s.random_regular(9, 6, seed),
    lambda seed: s.barabasi_albert(50, 3, seed),
    lambda seed: s.watts_strogatz(30, 4, 0.3, seed),
]


@pytest.mark.parametrize("make", RANDOM)
def test_random_graphs_are_connected_and_keyed(make: Callable[[int], s.Topology]) -> None:
    graphs = [make(seed) for seed in range(20)]
    assert all(g.is_connected for g in graphs)
    assert graphs[3] == make(3)
    assert len(set(graphs)) == 20


def test_random_regular_is_regular_for_every_possible_request() -> None:
    for n in range(1, 13):
        for degree in range(2, n):
            if n * degree % 2 == 0:
                assert set(s.random_regular(n, degree, seed=n).degrees.tolist()) == {degree}


def test_barabasi_albert_has_m_edges_per_newcomer() -> None:
    for n, m in [(2, 1), (5, 4), (6, 4), (200, 1), (200, 7)]:
        t = s.barabasi_albert(n, m, seed=1)
        assert t.m == m + m * (n - m - 1)
        assert t.is_connected


def test_barabasi_albert_prefers_large_degrees() -> None:
    """The degree distribution has the heavy tail 2m(m+1)/(k(k+1)(k+2)) of the model."""
    degrees = s.barabasi_albert(100_000, 3, seed=0).degrees
    for k in (3, 4, 6, 10):
        expected = 2 * 3 * 4 / (k * (k + 1) * (k + 2))
        assert np.mean(degrees == k) == pytest.approx(expected, rel=0.1)
    assert degrees.max() > 150


def test_erdos_renyi_has_the_right_density() -> None:
    m = np.mean([s.erdos_renyi(100, 0.2, seed).m for seed in range(30)])
    assert m == pytest.approx(0.2 * 4950, rel=0.02)
    pairs = sum(s.erdos_renyi(6, 0.7, seed).m for seed in range(300)) / 300
    assert pairs > 0.7 * 15  # given connected, a little above the plain mean


def test_registry_names_every_topology() -> None:
    needs: dict[str, dict[str, int | float]] = {
        "ring_of_cliques": {"clusters": 4},
        "random_regular": {"degree": 3},
        "erdos_renyi": {"probability": 0.4},
        "barabasi_albert": {"attach": 2},
        "watts_strogatz": {"degree": 4, "probability": 0.2},
    }
    for name in TOPOLOGIES:
        assert s.topology(name, 16, **needs.get(name, {})).n == 16  # type: ignore[arg-type]
    assert s.topology("grid", 12) == s.grid(3, 4)
    assert s.topology("grid", 12, rows=2) == s.grid(2, 6)
    assert s.topology("torus", 12, cols=3, rows=4) == s.torus(4, 3)


NAN = float("nan")
BAD: list[tuple[Callable[[], object], str]] = [
    (lambda: s.ring(0), "at least one client, not 0"),
    (lambda: s.ring(-3), "not -3"),
    (lambda: s.ring(2.5), "whole number, not 2.5"),  # type: ignore[arg-type]
    (lambda: s.complete(10**6), "499999500000 edges"),
    (lambda: s.ring(10**12), "1000000000000 clients"),
    (lambda: s.ring_of_cliques(10**6, 2), "more than"),
    (lambda: s.ring_of_cliques(4, 5), "4 clients cannot form 5 clusters"),
    (lambda: s.ring_of_cliques(4, 0), "0 clusters"),
    (lambda: s.grid(0, 3), "0 x 3"),
    (lambda: s.hypercube(12), "power of two clients, not 12 (try 8 or 16)"),
    (lambda: s.random_regular(5, 3), "5 clients cannot all have degree 3"),
    (lambda: s.random_regular(4, 4), "degree 4"),
    (lambda: s.random_regular(4, 1), "cannot be connected"),
    (lambda: s.erdos_renyi(10, NAN), "between 0 and 1, not nan"),
    (lambda: s.erdos_renyi(10, 1.5), "not 1.5"),
    (lambda: s.erdos_renyi(10, 0.0), "ln(n)/n"),
    (lambda: s.erdos_renyi(10**6, 1e-6), "clients alone"),
    (lambda: s.erdos_renyi(2000, 0.002), "clients alone"),
    (lambda: s.barabasi_albert(4, 4), "m = 4 with 4 clients"),
    (lambda: s.barabasi_albert(4, 0), "m = 0"),
    (lambda: s.watts_strogatz(10, 3, 0.1), "even degree"),
    (lambda: s.watts_strogatz(10, 4, NAN), "nan"),
    (lambda: s.from_edges([(0, 0)], 3), "edge (0, 0) is a self-loop"),
    (lambda: s.from_edges([(0, 1), (1, 3)], 3), "edge (1, 3): client 3 is not in 0..2"),
    (lambda: s.from_edges([(0, -1)], 3), "client -1"),
    (lambda: s.from_edges([(0, 10**12)]), "client 1000000000000"),
    (lambda: s.from_edges([(0, 10**30)]), "client 1" + "0" * 30),
    (lambda: s.from_edges([]), "no graph"),
    (lambda: s.from_edges([(0, 1, 2)], 3), "pair of client indices"),
    (lambda: s.from_edges([(0, 1), (2,)], 3), "pair of client indices"),
    (lambda: s.from_edges([(0.5, 1)], 3), "edge (0.5, 1)"),  # type: ignore[list-item]
    (lambda: s.from_edges([("a", "b")], 3), "pair"),  # type: ignore[list-item]
    (lambda: s.from_networkx(networkx.DiGraph([(0, 1)])), "directed"),
    (lambda: s.ring(4).neighbours(4), "client 4 is not in 0..3"),
    (lambda: s.ring(4).without([-1]), "client -1"),
    (lambda: s.topology("circle", 4), "no topology 'circle'"),
    (lambda: s.topology("ring", 4, clusters=2), "option clusters is for ring_of_cliques"),
    (lambda: s.topology("ring_of_cliques", 4), "option clusters is missing"),
    (lambda: s.topology("grid", 12, rows=5), "5 rows"),
    (lambda: s.topology("grid", 12, rows=3, cols=6), "3 x 6"),
    (lambda: s.communication_coefficients(s.from_edges([(0, 1), (2, 3)], 4)), "client 2 cannot be reached"),
    (lambda: s.communication_coefficients(s.ring(4), method="magic"), "no weight method 'magic'"),
    (lambda: s.ccs(s.ring(4), [0.5, 0.5]), "2 scores, but there are 4 clients"),
    (lambda: s.fastest(s.ring(5000)), "up to 600 clients"),
]


@pytest.mark.parametrize(("request_", "told"), BAD)
def test_bad_requests_are_told_in_one_line(request_: Callable[[], object], told: str) -> None:
    with pytest.raises(UserError) as error:
        request_()
    assert told in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("t", [s.ring(1), s.ring(5), s.barabasi_albert(50, 2)])
def test_nothing_can_be_changed(t: s.Topology) -> None:
    before = pickle.dumps(t)
    for name, value in [("n", 7), ("edges", None), ("foo", 1), ("degrees", None)]:
        with pytest.raises(AttributeError, match="cannot be changed"):
            setattr(t, name, value)
        with pytest.raises(AttributeError, match="cannot be changed"):
            delattr(t, name)
    for array in (t.edges, t.indptr, t.indices, t.edge_ids, t.degrees, t.components, t.edges[:1]):
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.setflags(write=True)
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    assert t.degrees is t.degrees
    again = pickle.loads(before)
    assert again == t
    assert hash(again) == hash(t)
    assert pickle.dumps(t) == before
    with pytest.raises(ValueError, match="WRITEABLE"):
        again.edges.setflags(write=True)
