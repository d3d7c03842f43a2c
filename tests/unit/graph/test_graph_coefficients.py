"""Coefficients: the conditions, the matrices, the gap."""

from __future__ import annotations

import math

import numpy as np
import pytest
from graph_strategies import cases
from hypothesis import given, settings

import swiftfl as s
from swiftfl.errors import UserError
from swiftfl.graph.coefficients import Coefficients
from swiftfl.graph.influence import Influence
from swiftfl.graph.methods import METHODS
from swiftfl.graph.spectrum import _second_descent, _second_direct, _second_inverse, laplacian

FAST = [name for name in METHODS if name != "fastest"]


@settings(max_examples=300, deadline=None)
@given(cases())
def test_conditions_hold_everywhere(case: tuple[s.Topology, Influence]) -> None:
    topology, p = case
    for method in FAST:
        c = s.communication_coefficients(topology, p, method)
        report = c.check(tolerance=1e-9)
        assert report.valid
        assert report.column_sum_error < 1e-12
        expected = c.expected_matrix().toarray()
        np.testing.assert_allclose(expected, expected.T, atol=1e-15)
        np.testing.assert_allclose(expected.sum(axis=0), 1.0, atol=1e-12)
        assert (1 - p.min()) ** 2 <= c.rho + 1e-12


@settings(max_examples=40, deadline=None)
@given(cases(most=10))
def test_expected_matrix_is_the_mean_of_the_active_matrices(case: tuple[s.Topology, Influence]) -> None:
    c = s.ccs(*case)
    mean = sum(p * c.active_matrix(i) for i, p in enumerate(c.influence))
    np.testing.assert_allclose(c.expected_matrix().toarray(), mean, atol=1e-14)


@settings(max_examples=60, deadline=None)
@given(cases())
def test_by_rate_gives_every_edge_at_least_metropolis(case: tuple[s.Topology, Influence]) -> None:
    assert (s.ccs_by_rate(*case).a >= s.metropolis(*case).a * (1 - 1e-12)).all()


@settings(max_examples=25, deadline=None)
@given(cases(most=10))
def test_fastest_is_valid_and_fastest(case: tuple[s.Topology, Influence]) -> None:
    best = s.fastest(*case)
    best.check()
    for method in FAST:
        assert best.spectral_gap >= s.communication_coefficients(*case, method).spectral_gap * (1 - 1e-3)


def test_one_over_n_is_what_its_name_says() -> None:
    for t in (s.ring(16), s.ring_of_cliques(10, 3), s.star(7), s.complete(5), s.ring(2)):
        c = s.communication_coefficients(t, method="one_over_n")
        np.testing.assert_allclose(c.of_neighbours, 1.0 / t.n, rtol=1e-12)
        np.testing.assert_allclose(c.own, 1.0 - t.degrees / t.n, rtol=1e-12)
    p = s.proportional_to([1, 2, 3, 4])
    even = s.communication_coefficients(s.ring(4), p, "one_over_n")
    np.testing.assert_allclose(list(even.weights(0).of.values()), [0.2, 0.4], rtol=1e-12)
    # Neighbours of the first client hold 0.98 of the influence: it would keep 0.02 < 1/3.
    lowered = s.communication_coefficients(s.star(3), s.given([0.02, 0.49, 0.49]), "one_over_n")
    assert lowered.own[0] == pytest.approx(1 / 3)
    assert lowered.check().valid


def test_single_client() -> None:
    for method in METHODS:
        c = s.communication_coefficients(s.ring(1), method=method)
        assert c.column(0) == {0: 1.0}
        assert c.check().valid
        assert (c.rho, c.spectral_gap) == (0.0, 1.0)


def test_columns_and_weights_agree() -> None:
    t = s.barabasi_albert(40, 3)
    c = s.ccs(t, s.proportional_to(np.arange(1, 41)))
    for i in range(40):
        w = c.weights(i)
        assert tuple(w.of) == t.neighbours(i)
        assert {**w.of, i: w.own} == c.column(i)
        assert list(c.column(i)) == sorted(c.column(i))
        assert isinstance(w.own, float)
        assert w.own + sum(w.of.values()) == pytest.approx(1.0, abs=1e-14)
    with pytest.raises(UserError, match="client 40"):
        c.weights(40)
    with pytest.raises(UserError, match="client -1"):
        c.weights(-1)


@pytest.mark.parametrize(
    ("a", "told"),
    [
        ([1.0, -0.1], "(c) fails: edge (1, 2)"),
        ([3.0, 0.5], "(b) fails: client 0"),
        ([np.nan, 1.0], "(a) fails"),
    ],
)
def test_check_names_the_first_violator(a: list[float], told: str) -> None:
    c = Coefficients(s.path(3), s.uniform(3), "by hand", np.array(a))
    with pytest.raises(UserError) as error:
        c.check()
    assert told in str(error.value)


def test_equal_methods_on_the_graphs_of_the_paper() -> None:
    graphs = [
        s.ring(16),
        s.star(9),
        s.random_regular(20, 4),
        s.ring_of_cliques(16, 2),
        s.ring_of_cliques(16, 4),
    ]
    for t in graphs:
        np.testing.assert_allclose(s.ccs(t).a, s.ccs_by_rate(t).a, rtol=1e-12)


def test_by_rate_is_continuous_at_uniform_scores() -> None:
    t = s.ring_of_cliques(10, 3)
    p = s.proportional_to(1.0 + 1e-7 * np.arange(10))
    np.testing.assert_allclose(s.ccs_by_rate(t, p).a, s.ccs_by_rate(t).a, rtol=1e-5)


def ring_gap(n: int) -> float:
    mu = (2.0 - 2.0 * math.cos(2.0 * math.pi / n)) / (3.0 * n)
    return mu * (2.0 - mu)


@pytest.mark.parametrize("n", [16, 400, 401, 3000, 10_000])
def test_gap_of_a_ring(n: int) -> None:
    assert s.ccs(s.ring(n)).spectral_gap == pytest.approx(ring_gap(n), rel=1e-6)


@pytest.mark.parametrize(
    "t", [s.barabasi_albert(600, 4), s.grid(20, 30), s.star(500), s.ring_of_cliques(600, 20), s.path(450)]
)
def test_sparse_and_dense_gap_agree(t: s.Topology) -> None:
    random = np.random.default_rng(0)
    for p in (s.uniform(t.n), s.proportional_to(random.lognormal(0, 1.5, t.n))):
        c = s.ccs(t, p)
        eigenvalues = np.linalg.eigvalsh(laplacian(t, c.edge_weights).toarray())
        assert c.spectral_gap == pytest.approx(eigenvalues[1] * (2 - eigenvalues[1]), rel=1e-6)
        Q = laplacian(t, c.edge_weights)
        assert _second_inverse(Q) == pytest.approx(eigenvalues[1], rel=1e-7)
        for other in (_second_direct(Q, restarts=10), _second_descent(Q)):
            assert other is None or other == pytest.approx(eigenvalues[1], rel=1e-5)


def test_one_dominant_client_in_a_large_graph() -> None:
    """lambda_n, not lambda_2, may be the largest in size; then the other end of the spectrum decides."""
    t = s.star(500)
    sizes = np.full(500, 1.0)
    sizes[0] = 1e6
    c = s.metropolis(t, s.proportional_to(sizes))
    eigenvalues = 1.0 - np.linalg.eigvalsh(laplacian(t, c.edge_weights).toarray())[1:]
    assert c.rho == pytest.approx(float((eigenvalues**2).max()), abs=1e-9)


def test_large_graphs_are_valid() -> None:
    random = np.random.default_rng(1)
    t = s.barabasi_albert(20_000, 4, seed=2)
    for p in (s.uniform(t.n), s.proportional_to(random.pareto(0.8, t.n) + 1.0)):
        for method in FAST:
            s.communication_coefficients(t, p, method).check()


def test_fastest_with_scores_that_floating_point_can_hardly_hold() -> None:
    tiny = [1e-12, 0.5, 0.4999999996990, 1e-10, 1e-10, 1e-10]
    hard = [(s.star(6), s.given(tiny)), (s.ring(4), s.given([1e-99, 0.5, 0.25, 0.25]))]
    for seed in range(8):
        random = np.random.default_rng(seed)
        graphs = (s.ring(20), s.star(12), s.barabasi_albert(30, 2, seed))
        hard += [(t, s.proportional_to(np.exp(6.0 * random.standard_normal(t.n)))) for t in graphs]
    for t, p in hard:
        best, simple = s.fastest(t, p), s.metropolis(t, p)
        best.check()
        assert best.spectral_gap >= (1 - 1e-5) * simple.spectral_gap
