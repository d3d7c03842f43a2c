"""The numbers of the paper's convergence theory, in logarithms, since they leave floating point.

The theory's constants, for n clients, expected matrix with rho, and a graph of active clients that is
jointly connected in every B iterations (one client is active per iteration, so B >= n):

    nu      = (1 - n^(-nB))^(1/B)                                              Lemma on products
    rho_nu  = (n-1)/n (7 / (2 (1-rho)) + sqrt(rho) / (1-sqrt(rho))^2 + 384 / (1-nu^2))
    T      >= 193^2 L M Delta_f rho_nu^2 n^4 p_max^2
    gamma   = sqrt(M n^2 Delta_f) / (sqrt(T L) + sqrt(M))
    bound   = 2 sqrt(Delta_f) / T
              + 2 sqrt(L Delta_f) (1 + 1921/20 rho_nu (sigma^2 + 6 zeta^2 X)) / sqrt(T M)

These are guarantees, not advice: ring(16) with L = M = Delta_f = 1 asks for T of about 10^630. No default
in this library comes from here. Slips of the paper, kept in view:

- X is sqrt(M) as printed in Theorem 1 ("printed"). The last step of its proof multiplies
  sigma^2/M + 6 zeta^2 by M, which gives X = M ("corrected"). Both are offered, labelled.
- nu rounds to 1 in double precision from n = 15 with B = n, so 1 - nu^2 must be computed in logarithms.
- With clients drawn at random no finite B is certain: B is an assumption on delays in disguise.
- The proof uses |sum p_i v_i|^2 <= sum p_i^2 |v_i|^2, which is false; Jensen gives sum p_i |v_i|^2. With
  it p_max leaves the constant phi.
- Communicating only every (s+1)-th step (C_s, s >= 1) makes W the identity in between, for which
  rho = 1: the theorem does not cover it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from swiftfl.errors import UserError
from swiftfl.graph.coefficients import Coefficients

LN10 = math.log(10.0)


@dataclass(frozen=True, slots=True)
class Problem:
    """The constants of the assumptions: smoothness L, batch size M, Delta_f, sigma^2, zeta^2."""

    L: float = 1.0
    M: float = 1.0
    Delta_f: float = 1.0
    sigma2: float = 0.0
    zeta2: float = 0.0

    def __post_init__(self) -> None:
        for name in ("L", "M", "Delta_f"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise UserError(f"{name} = {value} must be a positive number")
        for name in ("sigma2", "zeta2"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise UserError(f"{name} = {value} must be zero or positive")


@dataclass(frozen=True, slots=True)
class Bound:
    """Theorem 1's right-hand side after T iterations, as log10, with either zeta-term."""

    log10_printed: float
    log10_corrected: float


@dataclass(frozen=True, slots=True)
class Theory:
    """All numbers for one graph and problem. `log10_gap_nu` is log10(1 - nu^2)."""

    rho: float
    B: int
    nu: float
    log10_gap_nu: float
    log10_rho_nu: float
    log10_iterations: float
    log10_step_size: float
    bound: Bound


def theory(coefficients: Coefficients, problem: Problem = Problem(), B: int | None = None) -> Theory:
    """Every number of the theory at the smallest T that Theorem 1 allows; B = n unless given."""
    n, gap = coefficients.topology.n, coefficients.spectral_gap
    if n < 2:
        raise UserError("the theory needs at least two clients")
    if not gap > 0.0:
        raise UserError("the spectral gap of these weights rounds to zero: the theory has no numbers for it")
    B = n if B is None else B
    log10_gap_nu = log10_one_minus_nu2(n, B)
    log10_rho_nu = log10_rho_nu_of(n, gap, log10_gap_nu)
    log10_T = log10_iterations(n, float(coefficients.influence.max()), log10_rho_nu, problem)
    return Theory(
        rho=1.0 - gap,
        B=B,
        nu=nu(n, B),
        log10_gap_nu=log10_gap_nu,
        log10_rho_nu=log10_rho_nu,
        log10_iterations=log10_T,
        log10_step_size=log10_step_size(n, log10_T, problem),
        bound=bound(log10_T, log10_rho_nu, problem),
    )


def nu(n: int, B: int) -> float:
    """nu = (1 - n^(-nB))^(1/B); rounds to 1 for most n."""
    return math.exp(_log_power(n, B) / B)


def log10_one_minus_nu2(n: int, B: int) -> float:
    """log10(1 - nu^2), by expm1 and log1p; about ln(2/B) - nB ln n where n^(-nB) underflows.

    >>> round(log10_one_minus_nu2(16, 16), 2)
    -309.16
    """
    if n < 2 or B < 1:
        raise UserError(f"n = {n}, B = {B}: the theory needs n >= 2 and B >= 1")
    small = n * B * math.log(n)
    if small > 600.0:
        return (math.log(2.0 / B) - small) / LN10
    return math.log10(-math.expm1(2.0 / B * _log_power(n, B)))


def _log_power(n: int, B: int) -> float:
    """ln(1 - n^(-nB))."""
    return math.log1p(-math.exp(-n * B * math.log(n)))


def log10_rho_nu_of(n: int, gap: float, log10_gap_nu: float) -> float:
    """log10 of rho_nu, from 1 - rho and log10(1 - nu^2)."""
    rho = 1.0 - gap
    root_gap = gap / (1.0 + math.sqrt(rho))  # 1 - sqrt(rho), without cancellation
    terms = [math.log10(3.5 / gap), math.log10(384.0) - log10_gap_nu]
    if rho > 0.0:
        terms.append(math.log10(math.sqrt(rho)) - 2.0 * math.log10(root_gap))
    return math.log10((n - 1) / n) + _log10_sum(*terms)


def log10_iterations(n: int, p_max: float, log10_rho_nu: float, problem: Problem) -> float:
    """log10 of the fewest iterations for which Theorem 1 says anything."""
    constants = math.log10(problem.L * problem.M * problem.Delta_f)
    return 2.0 * math.log10(193.0) + constants + 2.0 * log10_rho_nu + math.log10(n**4 * p_max**2)


def log10_step_size(n: int, log10_T: float, problem: Problem) -> float:
    """log10 of gamma after T iterations."""
    top = 0.5 * math.log10(problem.M * n**2 * problem.Delta_f)
    return top - _log10_sum(0.5 * (log10_T + math.log10(problem.L)), 0.5 * math.log10(problem.M))


def bound(log10_T: float, log10_rho_nu: float, problem: Problem) -> Bound:
    """Theorem 1's right-hand side, as printed and corrected."""

    def with_factor(X: float) -> float:
        noise = problem.sigma2 + 6.0 * problem.zeta2 * X
        inner = [0.0]
        if noise > 0.0:
            inner.append(math.log10(1921.0 / 20.0 * noise) + log10_rho_nu)
        first = math.log10(2.0 * math.sqrt(problem.Delta_f)) - log10_T
        second = math.log10(2.0 * math.sqrt(problem.L * problem.Delta_f)) + _log10_sum(*inner)
        return _log10_sum(first, second - 0.5 * (log10_T + math.log10(problem.M)))

    return Bound(log10_printed=with_factor(math.sqrt(problem.M)), log10_corrected=with_factor(problem.M))


def _log10_sum(*logs: float) -> float:
    """log10 of a sum, from the log10 of its terms."""
    top = max(logs)
    return top + math.log10(sum(10.0 ** (term - top) for term in logs))
