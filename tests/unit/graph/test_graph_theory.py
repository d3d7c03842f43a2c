"""The theory's numbers against direct evaluation where that is possible, and beyond."""

from __future__ import annotations

import math

import pytest

import swiftfl as s
from swiftfl.errors import UserError
from swiftfl.graph.theory import Problem, bound, log10_one_minus_nu2, nu, theory


def test_nu_against_exact_arithmetic() -> None:
    from decimal import Decimal, getcontext

    getcontext().prec = 400
    for n, B in [(2, 2), (3, 3), (5, 5), (8, 8), (4, 20), (15, 15)]:
        power = 1 - Decimal(n) ** (-n * B)
        exact = power ** (Decimal(1) / B)
        assert nu(n, B) == pytest.approx(float(exact), rel=1e-14)
        assert log10_one_minus_nu2(n, B) == pytest.approx(float((1 - exact**2).log10()), rel=1e-9)


def test_nu_rounds_to_one_but_its_logarithm_does_not() -> None:
    assert nu(15, 15) == 1.0
    small = 16 * 16 * math.log(16)
    assert log10_one_minus_nu2(16, 16) == pytest.approx((math.log(2 / 16) - small) / math.log(10))
    assert log10_one_minus_nu2(1000, 1000) == pytest.approx(-3_000_002.7, abs=0.1)


def test_both_branches_agree_where_they_meet() -> None:
    n = 2
    B = int(600 / (n * math.log(n)))
    assert log10_one_minus_nu2(n, B + 1) - log10_one_minus_nu2(n, B) == pytest.approx(-0.602, abs=0.002)


def test_two_clients_against_the_plain_formulas() -> None:
    problem = Problem(L=2.0, M=4.0, Delta_f=3.0, sigma2=0.5, zeta2=0.25)
    t = theory(s.ccs(s.ring(2)), problem, B=2)
    rho, v = 0.25, (1 - 2.0**-4) ** 0.5
    rho_nu = 0.5 * (3.5 / (1 - rho) + rho**0.5 / (1 - rho**0.5) ** 2 + 384 / (1 - v**2))
    T = 193**2 * 2 * 4 * 3 * rho_nu**2 * 2**4 * 0.25
    assert 10**t.log10_rho_nu == pytest.approx(rho_nu, rel=1e-12)
    assert 10**t.log10_iterations == pytest.approx(T, rel=1e-11)
    gamma = math.sqrt(4 * 4 * 3) / (math.sqrt(T * 2) + math.sqrt(4))
    assert 10**t.log10_step_size == pytest.approx(gamma, rel=1e-11)

    def right_hand_side(X: float) -> float:
        inner = 1 + 1921 / 20 * rho_nu * (0.5 + 6 * 0.25 * X)
        return 2 * math.sqrt(3) / T + 2 * math.sqrt(6) * inner / math.sqrt(T * 4)

    assert 10**t.bound.log10_printed == pytest.approx(right_hand_side(2.0), rel=1e-11)
    assert 10**t.bound.log10_corrected == pytest.approx(right_hand_side(4.0), rel=1e-11)


def test_ring_of_16_needs_ten_to_the_630_iterations() -> None:
    t = theory(s.ccs(s.ring(16)))
    assert t.B == 16
    assert t.log10_iterations == pytest.approx(630, abs=1)


def test_variants_agree_for_single_samples_and_iid_data() -> None:
    one = bound(10.0, 2.0, Problem(M=1.0, zeta2=1.0))
    assert one.log10_printed == one.log10_corrected
    iid = bound(10.0, 2.0, Problem(M=64.0, zeta2=0.0, sigma2=1.0))
    assert iid.log10_printed == iid.log10_corrected
    both = bound(10.0, 2.0, Problem(M=64.0, zeta2=1.0))
    assert both.log10_corrected > both.log10_printed


@pytest.mark.parametrize("wrong", [{"L": 0.0}, {"M": -1.0}, {"Delta_f": float("nan")}, {"zeta2": -1.0}])
def test_bad_constants(wrong: dict[str, float]) -> None:
    with pytest.raises(UserError, match=next(iter(wrong))):
        Problem(**wrong)


def test_a_single_client_has_no_theory() -> None:
    with pytest.raises(UserError, match="two clients"):
        theory(s.ccs(s.ring(1)))
