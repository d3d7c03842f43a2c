"""Steps of the proof of Theorem 1 that do not hold, each with an example, and what holds instead.

They are kept as tests so that docs/paper-map.md can name them without a doubt. None of them shows that the
theorem is false: docs/convergence.md measures what it says.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import swiftfl as s
from swiftfl.graph.theory import Problem, bound, nu


def test_the_product_of_sums_is_not_the_sum_of_products() -> None:
    """The recursion for X^{t+1} writes prod (W + D_q) as prod W + prod D_q, and Lemma 1 does so again.

    One factor is right; from two on the mixed terms W D and D W are missing, and they are not small.
    """
    c = s.ccs(s.ring(5))
    W = np.asarray(c.expected_matrix().todense())
    D = [c.active_matrix(i) - W for i in range(5)]
    np.testing.assert_allclose(W + D[0], c.active_matrix(0), atol=1e-15)
    whole = c.active_matrix(0) @ c.active_matrix(1)
    missing = whole - (W @ W + D[0] @ D[1])
    np.testing.assert_allclose(missing, W @ D[1] + D[0] @ W, atol=1e-15)
    assert np.linalg.norm(missing) > 0.5 * np.linalg.norm(whole - W @ W)


def test_the_square_of_a_mean_is_not_bounded_with_squared_influence() -> None:
    """|sum p_i v_i|^2 <= sum p_i^2 |v_i|^2 fails when all v_i are equal; Jensen's sum p_i |v_i|^2 holds."""
    p = np.full(8, 1 / 8)
    v = np.ones((8, 3))
    assert ((p @ v) ** 2).sum() > p**2 @ (v**2).sum(axis=1)
    draw = np.random.default_rng(0)
    for _ in range(200):
        p, v = draw.dirichlet(np.ones(8)), draw.normal(size=(8, 3))
        assert ((p @ v) ** 2).sum() <= p @ (v**2).sum(axis=1)


@pytest.mark.parametrize(("step", "active_is_further"), [(0.0, False), (5.0, True)])
def test_the_active_client_is_not_any_client(step: float, active_is_further: bool) -> None:
    """Term A takes E |x_{i_t} - mean|^2 after the step for E sum_i p_i |x_i - mean|^2.

    i_t is who has just moved: it lies nearer than others when it has averaged, further off when its own
    gradient was long.
    """
    c = s.ccs(s.path(3), [1 / 6, 2 / 6, 3 / 6])
    X = np.array([[0.0, 1.0, 3.0]])
    of_active = of_any = 0.0
    for i, p in enumerate(c.influence):
        after = X @ c.active_matrix(i)
        after[0, i] += step
        apart = (after[0] - after.mean()) ** 2
        of_active += p * apart[i]
        of_any += p * float(c.influence @ apart)
    assert (of_active > of_any) == active_is_further
    assert abs(of_active - of_any) > 0.05 * of_any


def test_the_later_gradient_of_a_pair_is_lost_in_b2() -> None:
    """Equation (61) keeps, of |G_j|^2 + |G_j'|^2 for j < j', the earlier one only.

    Two clients, t = 1, both gradients in column i: a long second gradient breaks the bound. With the terms of
    the later gradients, sum over k = t-j+1 .. t of rho^(k/2), it holds.
    """
    c = s.ccs(s.complete(2))
    W, i = np.asarray(c.expected_matrix().todense()), 0
    away = np.full(2, 0.5) - np.eye(2)[i]
    first, second = (W @ away)[i], away[i]  # what (1/n - W e_i) and (1/n - e_i) have in row i
    root = math.sqrt(c.rho)
    for long in (0.1, 1.0, 10.0):
        crossed = 2 * (1.0 * first) * (long * second)
        printed = 1 / 2 * 2 * root  # (n-1)/n 2 (t-j) rho^((t-j)/2) |G_0|^2, and nothing of G_1
        assert (crossed <= printed) == (long < 10.0)
        assert crossed <= 1 / 2 * (root + root * long**2)


def test_the_mixed_terms_of_b4_grow_with_t() -> None:
    """2 sum_{j<j'} <v_j, v_j'> <= 2 sum_j |v_j|^2 fails for t >= 3; with t for the second 2 it holds."""
    for t in range(1, 8):
        v = np.ones((t + 1, 2))
        G = v @ v.T
        crossed, squares = G.sum() - np.trace(G), np.trace(G)
        assert crossed == pytest.approx(t * squares)
        assert (crossed <= 2 * squares) == (t <= 2)


def test_removing_the_exponent_is_right() -> None:
    """nu^(k-1) <= 2 nu^k needs nu >= 1/2, which every n >= 2 and B >= 1 give."""
    assert min(nu(n, B) for n in range(2, 20) for B in range(1, 20)) == nu(2, 1) == 0.75


@pytest.mark.parametrize("M", [1, 4, 64])
def test_the_last_line_of_the_theorem_has_a_root_too_many(M: int) -> None:
    """From the line before: (1921/10) L gamma rho_nu / n (sigma^2/M + 6 zeta^2), gamma at its bound."""
    n, T, L, delta, rho_nu, sigma2, zeta2 = 4, 10.0**12, 2.0, 3.0, 500.0, 0.5, 0.25
    gamma = math.sqrt(M * n**2 * delta / (T * L))
    before = 1921 / 10 * L * gamma * rho_nu / n * (sigma2 / M + 6 * zeta2)
    first = 2 * math.sqrt(delta) / T + 2 * math.sqrt(L * delta) / math.sqrt(T * M)
    found = bound(math.log10(T), math.log10(rho_nu), Problem(L, M, delta, sigma2, zeta2))
    assert 10**found.log10_corrected == pytest.approx(first + before, rel=1e-9)
    assert (10**found.log10_printed == pytest.approx(first + before, rel=1e-9)) == (M == 1)
