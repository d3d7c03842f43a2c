"""The constants of the convergence problems against brute force, and the exact moments against runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from swiftfl.engines import SampledEngine
from swiftfl.errors import UserError
from swiftfl.graph.theory import log10_step_size
from swiftfl.reproduce.convergence.exact import averaged_gradient, moment_map
from swiftfl.reproduce.convergence.fit import first_below, power, slope_over_seeds
from swiftfl.reproduce.convergence.measure import setup_of, theorem_step_size, watch
from swiftfl.reproduce.convergence.problems import PROBLEMS, Bowl, convex, rippled
from swiftfl.reproduce.convergence.settings import coefficients_of, influence, theory_problem
from swiftfl.sample import Batch
from swiftfl.workload.quadratic import Quadratic

NOTHING = np.empty(0, dtype=np.int64)
CASES = [(name, data, p) for name in PROBLEMS for data in (True, False) for p in ("uniform", "skewed")]


@pytest.fixture(params=CASES, ids=str)
def problem(request: Any) -> Bowl:
    name, iid, p = request.param
    return PROBLEMS[name](influence(p, 6), iid)


def points(problem: Bowl, count: int = 4000) -> np.ndarray:
    return np.random.default_rng(0).normal(0, 3, (count, problem.parameters))


def test_gradients_are_the_derivatives_of_f(problem: Bowl) -> None:
    x, h = points(problem, 5), 1e-5
    steps = h * np.eye(problem.parameters)
    for point in x:
        numeric = (problem.f(point + steps) - problem.f(point - steps)) / (2 * h)
        np.testing.assert_allclose(problem.gradients_of_f(point[None])[0], numeric, atol=1e-7)
        mean = sum(p * problem.exact(point, i) for i, p in enumerate(problem.p))
        np.testing.assert_allclose(problem.gradients_of_f(point[None])[0], mean, atol=1e-12)


def test_curvature_is_between_its_bounds_and_touches_them(problem: Bowl) -> None:
    h = 1e-5
    found = []
    for i in range(problem.clients):
        x = points(problem)
        up, down = problem.exact(x + h, i), problem.exact(x - h, i)
        found.append((up - down) / (2 * h))  # separable: the Hessian is diagonal
    curvature = np.array(found)
    assert curvature.max() <= problem.L + 1e-6
    assert curvature.min() >= problem.smallest_curvature - 1e-6
    assert curvature.max() == pytest.approx(problem.L, abs=1e-2)
    assert curvature.min() == pytest.approx(problem.smallest_curvature, abs=1e-2)


def test_zeta_is_the_largest_difference_between_clients(problem: Bowl) -> None:
    """The largest over x, coordinate by coordinate since f_i are separable, is zeta^2."""
    grid = np.linspace(-4, 4, 20_001)[:, None] * np.ones(problem.parameters)
    gaps = np.array([problem.exact(grid, i) - problem.gradients_of_f(grid) for i in range(problem.clients)])
    by_coordinate = np.einsum("i,ixk->xk", problem.p, gaps**2)
    largest = np.sqrt(by_coordinate.max(axis=0).sum())
    assert largest <= problem.zeta + 1e-9
    assert largest == pytest.approx(problem.zeta, abs=1e-4)


def test_the_noise_has_the_variance_sigma_says(problem: Bowl) -> None:
    x = np.zeros(problem.parameters)
    noise = np.array(
        [problem.gradient(x, Batch(2, c, NOTHING)).g - problem.exact(x, 2) for c in range(1, 20_001)]
    )
    square = (noise**2).sum(axis=1)
    error = square.std() / np.sqrt(len(square))
    assert abs(square.mean() - problem.sigma**2) < 5 * error
    assert np.abs(noise.mean(axis=0)).max() < 5 * problem.sigma / np.sqrt(len(noise))


def test_noise_depends_on_client_and_counter_only(problem: Bowl) -> None:
    forwards = [problem.noise(1, c).copy() for c in (3, 700, 4)]
    again = PROBLEMS["convex"](problem.p, True)
    backwards = [again.noise(1, c).copy() for c in (4, 700, 3)]
    assert all((a == b).all() for a, b in zip(forwards[::-1], backwards, strict=True))


def test_nothing_is_below_the_minimum(problem: Bowl) -> None:
    assert np.abs(problem.gradients_of_f(problem.minimiser[None])).max() < 1e-10
    assert problem.f(np.concatenate([points(problem), problem.start[None]])).min() >= problem.minimum
    near = problem.minimiser + np.random.default_rng(1).normal(0, 0.3, (4000, problem.parameters))
    assert problem.f(near).min() >= problem.minimum


def test_the_convex_problem_is_the_quadratic_of_the_library() -> None:
    p = influence("skewed", 5)
    ours = convex(p, iid=False)
    theirs = Quadratic(np.tile(ours.m, (5, 1)), ours.b, influence=p.tolist())
    assert ours.L == theirs.L
    assert ours.zeta == pytest.approx(theirs.zeta)
    assert ours.zeta == pytest.approx(1.0)
    assert ours.gap == pytest.approx(1.0)
    x = points(ours, 3)
    np.testing.assert_allclose(ours.f(x), [e.loss for e in theirs.evaluate(list(x))], rtol=1e-12)
    np.testing.assert_allclose(ours.minimiser, theirs.minimiser, atol=1e-12)


def test_the_rippled_problem_is_not_convex_and_starts_on_a_ripple() -> None:
    problem = rippled(influence("uniform", 4), iid=True)
    assert problem.smallest_curvature < 0
    h = 1e-4
    second = problem.f(problem.start + h * np.eye(10)) + problem.f(problem.start - h * np.eye(10))
    curvature = (second - 2 * problem.f(problem.start[None])) / h**2
    assert (curvature[:2] < 0).all()


def test_the_step_size_is_the_theorems() -> None:
    problem = rippled(influence("skewed", 8), iid=False)
    ours = theorem_step_size(8, 4096, problem.L, problem.gap)
    assert np.log10(ours) == pytest.approx(log10_step_size(8, np.log10(4096), theory_problem(problem)))


@pytest.mark.parametrize("p", ["uniform", "skewed"])
def test_runs_scatter_around_the_exact_expectation(p: str) -> None:
    """Algorithm 1 in the sampled engine against second moments that were computed without a draw."""
    n, log2_T, runs = 4, 8, 60
    scores = influence(p, n)
    coefficients = coefficients_of("ring", scores)
    step = theorem_step_size(n, 2**log2_T, 1.0, 1.0)
    exact = averaged_gradient(convex(scores, False), coefficients, step, log2_T)
    found = []
    for seed in range(runs):
        problem = convex(scores, False, seed)
        engine = SampledEngine(setup_of(problem, coefficients, step, 2**log2_T, seed))
        found.append(watch(engine, [problem], every=1)[0].averaged)
    assert abs(np.mean(found) - exact) < 4 * np.std(found) / np.sqrt(runs)
    assert np.std(found) / np.sqrt(runs) < 0.05 * exact  # so that the test can fail


def test_doubling_sums_what_stepping_sums() -> None:
    p = influence("skewed", 3)
    problem, coefficients = convex(p, False), coefficients_of("ring", p)
    columns = np.stack([coefficients.active_matrix(i)[:, i] for i in range(3)])
    total = 0.0
    for k in range(problem.parameters):
        K = moment_map(columns, problem, k, 0.2)
        S = np.kron(*[np.append(np.full(3, problem.start[k]), 1.0)] * 2)
        centre = problem.m[k] * np.append(np.full(3, 1 / 3), -problem.p @ problem.b[:, k])
        for _ in range(32):
            total += np.kron(centre, centre) @ S
            S = K @ S
    assert averaged_gradient(problem, coefficients, 0.2, 5) == pytest.approx(total / 32, rel=1e-12)


def test_second_moments_are_refused_where_they_do_not_hold() -> None:
    p = influence("uniform", 4)
    with pytest.raises(UserError, match="quadratics"):
        averaged_gradient(rippled(p, True), coefficients_of("ring", p), 0.1, 4)


def test_looking_less_often_gives_nearly_the_same_average() -> None:
    p = influence("uniform", 4)
    coefficients = coefficients_of("ring", p)
    often, seldom = (
        watch(SampledEngine(setup_of(convex(p, True), coefficients, 0.1, 1000, 0)), [convex(p, True)], every)[
            0
        ]
        for every in (1, 3)
    )
    assert often.at[-1] == seldom.at[-1] == 1000
    assert often.averaged == pytest.approx(often.gradient[:-1].mean(), rel=1e-12)
    assert seldom.averaged == pytest.approx(often.averaged, rel=0.01)
    assert seldom.first_below(0.1) == pytest.approx(often.first_below(0.1), abs=3)
    assert often.first_below(0.0) is None


def test_a_run_that_diverges_says_so() -> None:
    p = influence("uniform", 4)
    problem = convex(p, True)
    engine = SampledEngine(setup_of(problem, coefficients_of("ring", p), 40.0, 5000, 0))
    assert watch(engine, [problem], every=2)[0].averaged == np.inf


def test_slopes_of_power_laws() -> None:
    x = [2.0**k for k in range(5, 12)]
    assert power(x, [7 * v**-0.5 for v in x]) == pytest.approx(-0.5, abs=1e-12)
    draw = np.random.default_rng(3)
    curves = [[3 * v**-0.5 * np.exp(draw.normal(0, 0.05)) for v in x] for _ in range(50)]
    fit = slope_over_seeds(x, curves)
    assert fit.error is not None
    assert abs(fit.slope + 0.5) < 4 * fit.error
    # The standard error of one fit is 0.05 / sqrt(sum (log x - mean)^2); over 50 seeds a 7th of that.
    expected = 0.05 / np.sqrt(((np.log(x) - np.mean(np.log(x))) ** 2).sum()) / np.sqrt(50)
    assert fit.error == pytest.approx(expected, rel=0.4)
    assert slope_over_seeds(x, curves[:1]).error is None


def test_where_a_curve_meets_a_level() -> None:
    x = [1.0, 4.0, 16.0]
    assert first_below(x, [1.0, 0.5, 0.25], 0.5) == 4.0
    assert first_below(x, [1.0, 0.5, 0.25], 0.1) is None
    assert first_below(x, [np.inf, np.inf, 0.25], 0.5) == 16.0
    assert first_below(x, [0.4, 0.6, 0.25], 0.5) is not None
    assert 4.0 < first_below(x, [0.4, 0.6, 0.25], 0.5) < 16.0  # type: ignore[operator]
