"""What the measurements share: sizes by scale, influence vectors, graphs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import swiftfl
from swiftfl.errors import UserError
from swiftfl.graph import Coefficients, communication_coefficients
from swiftfl.graph.theory import Problem
from swiftfl.reproduce.convergence.problems import PROBLEMS, Array, Bowl

GRAPHS = {"ring": swiftfl.ring, "complete": swiftfl.complete}


@dataclass(frozen=True)
class Size:
    """The sizes of one scale. T is always a power of two, as `exact` needs it."""

    clients: int
    rate_exponents: tuple[int, ...]
    reach_exponent: int
    delay_exponent: int
    factors: tuple[int, ...]
    lemma_exponent: int
    lemma_runs: int
    numbers: tuple[int, ...]
    numbers_exponents: tuple[int, ...]
    levels: tuple[float, ...]
    gap_levels: tuple[float, ...]


SIZES = {
    "smoke": Size(4, tuple(range(8, 14)), 13, 12, (1, 100), 10, 4, (2, 4, 8), tuple(range(6, 14)),
                  (0.1, 0.05), (0.02,)),
    "small": Size(8, tuple(range(10, 19)), 17, 15, (1, 2, 10, 100), 12, 16, (4, 8, 16, 32, 64),
                  tuple(range(6, 18)), (0.1, 0.03, 0.01), (0.02, 0.005)),
    "paper": Size(16, tuple(range(10, 21)), 20, 17, (1, 2, 4, 10, 100), 13, 32, (4, 8, 16, 32, 64, 128),
                  tuple(range(6, 20)), (0.1, 0.03, 0.01, 0.005), (0.02, 0.005)),
}  # fmt: skip


def size_of(scale: str) -> Size:
    if scale not in SIZES:
        raise UserError(f"there is no scale {scale!r}: choose from {', '.join(SIZES)}")
    return SIZES[scale]


def influence(kind: str, n: int) -> Array:
    """`uniform`, or `skewed`: p_i in proportion to 1, 2, ..., n."""
    scores = np.ones(n) if kind == "uniform" else np.arange(1.0, n + 1)
    p: Array = scores / scores.sum()
    return p


def coefficients_of(graph: str, p: Array) -> Coefficients:
    return communication_coefficients(GRAPHS[graph](len(p)), p)


def problem_of(name: str, data: str, p: Array, seed: int = 0) -> Bowl:
    return PROBLEMS[name](p, data == "iid", seed)


def constants(problem: Bowl) -> dict[str, float]:
    """The constants of the assumptions, for the report."""
    return {
        "L": problem.L,
        "smallest_curvature": problem.smallest_curvature,
        "sigma": problem.sigma,
        "zeta": problem.zeta,
        "gap": problem.gap,
    }


def theory_problem(problem: Bowl) -> Problem:
    """The same for `swiftfl.graph.theory`; one gradient is one sample, M = 1."""
    return Problem(L=problem.L, M=1, Delta_f=problem.gap, sigma2=problem.sigma**2, zeta2=problem.zeta**2)
