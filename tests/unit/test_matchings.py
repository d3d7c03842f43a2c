"""MATCHA's plan: proper matchings, probabilities that are optimal, and alpha against a formula."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import swiftfl
from swiftfl.errors import UserError
from swiftfl.graph.matchings import matching_plan, matchings


def edges_of(partner: np.ndarray) -> list[tuple[int, int]]:
    return [(i, int(k)) for row in partner for i, k in enumerate(row) if i < k]


def laplacian(row: np.ndarray) -> np.ndarray:
    L = np.zeros((row.size, row.size))
    for i, k in enumerate(row):
        if k >= 0:
            L[i, i] += 1
            L[i, k] -= 1
    return L


@settings(max_examples=60, deadline=None)
@given(n=st.integers(2, 24), density=st.floats(0.1, 1.0), seed=st.integers(0, 10**6))
def test_matchings_hold_every_edge_once(n: int, density: float, seed: int) -> None:
    draw = np.random.default_rng(seed)
    tree = [(int(draw.integers(i)), i) for i in range(1, n)]
    more = [(i, j) for i in range(n) for j in range(i) if draw.random() < density]
    topology = swiftfl.from_edges(tree + more, n)
    partner = matchings(topology)
    assert len(partner) <= topology.degrees.max() + 1
    assert sorted(edges_of(partner)) == [tuple(edge) for edge in topology.edges.tolist()]
    for row in partner:
        matched = np.flatnonzero(row >= 0)
        assert (row[row[matched]] == matched).all()


def test_an_even_ring_is_two_matchings() -> None:
    assert len(matchings(swiftfl.ring(16))) == 2


@pytest.mark.parametrize("budget", [0.25, 0.5, 0.8, 1.0])
def test_probabilities_are_optimal(budget: float) -> None:
    """No random feasible vector connects better, and the budget is kept."""
    topology = swiftfl.ring_of_cliques(12, clusters=3)
    plan = matching_plan(topology, budget)
    L = np.stack([laplacian(row) for row in plan.partner])
    m = len(L)

    def connectivity(q: np.ndarray) -> float:
        return float(np.linalg.eigvalsh(np.tensordot(q, L, axes=1))[1])

    q = plan.probabilities
    assert ((q >= 0) & (q <= 1)).all()
    assert q.sum() <= budget * m + 1e-6
    best = connectivity(q)
    draw = np.random.default_rng(0)
    for _ in range(300):
        other = np.clip(q + 0.2 * draw.standard_normal(m), 0, 1)
        other *= min(1.0, budget * m / max(other.sum(), 1e-12))
        assert connectivity(other) <= best + 1e-6


def test_alpha_and_rho_against_simulated_matrices() -> None:
    """rho is the norm of E[W'W] - J: estimated from drawn matrices, and by the pair's closed form."""
    plan = matching_plan(swiftfl.ring_of_cliques(8, clusters=2), 0.5)
    L = np.stack([laplacian(row) for row in plan.partner])
    draw = np.random.default_rng(1)
    n, total, count = 8, np.zeros((8, 8)), 40_000
    for active in draw.random((count, len(L))) < plan.probabilities:
        W = np.eye(n) - plan.alpha * L[active].sum(axis=0)
        total += W.T @ W
    assert np.linalg.norm(total / count - 1 / n, 2) == pytest.approx(plan.rho, abs=0.01)

    pair = matching_plan(swiftfl.ring(2), 0.5)  # E[W'W] - J has eigenvalue 1 - q + q (1 - 2 alpha)^2
    assert pair.alpha == pytest.approx(0.5, abs=1e-4)
    assert pair.rho == pytest.approx(0.5, abs=1e-6)


def test_bad_budgets_and_large_graphs_are_refused() -> None:
    for budget in (0.0, -1.0, 1.1, float("nan")):
        with pytest.raises(UserError, match="budget"):
            matching_plan(swiftfl.ring(4), budget)
    with pytest.raises(UserError, match="at most"):
        matching_plan(swiftfl.ring(5000))
