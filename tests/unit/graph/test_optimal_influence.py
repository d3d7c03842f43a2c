"""The optimal influence against a grid of all influences, and against what is chosen without it."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest
from typer.testing import CliRunner

import swiftfl
from swiftfl.cli.main import app
from swiftfl.errors import UserError
from swiftfl.graph.influence import given, proportional_to
from swiftfl.graph.optimal_influence import InfluenceProblem, _best_step
from swiftfl.graph.theory import Problem
from swiftfl.graph.topology import Topology

CASES: dict[str, tuple[Topology, list[float], list[float], Problem]] = {
    "path, slow and rich": (swiftfl.path(3), [0.2, 1, 1], [4, 1, 1], Problem(sigma2=1.0, zeta2=0.25, M=8)),
    "triangle, fast and poor": (swiftfl.complete(3), [3, 1, 1], [1, 2, 5], Problem(sigma2=1.0, zeta2=0.1)),
    "path, IID": (swiftfl.path(3), [0.1, 1, 2], [1, 1, 1], Problem(sigma2=1.0, zeta2=0.0)),
    "two": (swiftfl.path(2), [0.3, 1], [1, 3], Problem(sigma2=0.5, zeta2=1.0)),
}


@pytest.mark.parametrize("case", CASES)
def test_no_influence_on_a_fine_grid_is_better(case: str) -> None:
    topology, rates, sizes, problem = CASES[case]
    asked = InfluenceProblem(topology, rates, sizes, problem, seconds=300.0)
    best, n, steps = asked.optimise(), topology.n, 40
    grid = [
        np.array([*part, steps - sum(part)]) / steps
        for part in product(range(1, steps), repeat=n - 1)
        if sum(part) < steps
    ]
    on_the_grid = min(asked.predict(given(p)).level for p in grid)
    assert best.level <= on_the_grid * (1 + 1e-6)
    assert best.influence.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(6))
def test_it_is_never_worse_than_what_is_chosen_without_it(seed: int) -> None:
    draw = np.random.default_rng(seed)
    topology = [swiftfl.ring(7), swiftfl.star(6), swiftfl.ring_of_cliques(9, clusters=3)][seed % 3]
    rates, sizes = (np.exp(draw.normal(0, 1, topology.n)) for _ in range(2))
    problem = Problem(L=2.0, M=4, Delta_f=1.5, sigma2=1.0, zeta2=float(draw.random()))
    asked = InfluenceProblem(topology, rates, sizes, problem, seconds=float(10 ** draw.uniform(1, 4)))
    best = asked.optimise()
    assert all(best.level <= other.level for other in asked.candidates().values())


def test_without_data_that_differ_or_disagreement_rates_are_best() -> None:
    """A long run has short steps: disagreement vanishes, and V = sum p^2 / r decides."""
    rates = [0.5, 1.0, 2.0, 4.0]
    problem = Problem(sigma2=1.0, zeta2=0.0)
    best = InfluenceProblem(swiftfl.complete(4), rates, None, problem, seconds=1e10).optimise()
    np.testing.assert_allclose(best.influence, proportional_to(rates), rtol=0.02)


def test_with_data_that_differ_much_data_decide() -> None:
    problem = Problem(sigma2=0.01, zeta2=100.0)
    sizes = [1.0, 2.0, 3.0, 4.0]
    best = InfluenceProblem(swiftfl.complete(4), [4, 3, 2, 1], sizes, problem, seconds=1e7).optimise()
    np.testing.assert_allclose(best.influence, proportional_to(sizes), rtol=0.02)


def test_agreement_is_the_rate_at_which_differences_vanish() -> None:
    """The expected models after a second are X exp(-G); on a ring of equals G has known eigenvalues."""
    n = 8
    found = InfluenceProblem(swiftfl.ring(n)).candidates()["uniform"].agreement
    assert found == pytest.approx(2 / 3 * (1 - np.cos(2 * np.pi / n)))


def test_the_best_step_size_is_a_minimum() -> None:
    for a, b, c in [(1.0, 2.0, 3.0), (0.1, 0.0, 5.0), (2.0, 1.0, 0.0)]:
        x = _best_step(a, b, c)

        def level(x: float, a: float = a, b: float = b, c: float = c) -> float:
            return a / x + b * x + c * x * x

        assert level(x) <= min(level(0.99 * x), level(1.01 * x))


def test_wrong_uses() -> None:
    ring = swiftfl.ring(4)
    for arguments, told in [
        ({"rates": [1, 2]}, "2 rates were given for 4 clients"),
        ({"rates": [1, 2, 0, 1]}, "must be a positive number"),
        ({"sizes": [1, 2, 3]}, "3 data sizes were given for 4 clients"),
        ({"seconds": 0.0}, "length in seconds"),
    ]:
        with pytest.raises(UserError, match=told):
            InfluenceProblem(ring, **arguments)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="2 to 256 clients"):
        InfluenceProblem(swiftfl.ring(257))


def test_the_command() -> None:
    asked = [
        "graph",
        "ring",
        "--clients",
        "4",
        "--optimise-influence",
        "--rates",
        "0.25,1,1,1",
        "--sizes",
        "4,1,1,1",
    ]
    shown = CliRunner().invoke(app, asked)
    assert shown.exit_code == 0
    assert "level, optimal" in shown.output
    found = json.loads(CliRunner().invoke(app, [*asked, "--json"]).output)
    choices = found["optimised"]["choices"]
    assert choices["optimal"]["influence"] == found["influence"]
    assert choices["optimal"]["level"] == min(one["level"] for one in choices.values())


@pytest.mark.parametrize("option", ["--rates", "--sizes"])
@pytest.mark.parametrize("text", ["0,1,1,1", "-1,1,1,1", "nan,1,1,1", "inf,1,1,1"])
def test_numbers_that_cannot_be_are_named_by_their_option(option: str, text: str) -> None:
    shown = CliRunner().invoke(
        app, ["graph", "ring", "--clients", "4", "--optimise-influence", f"{option}={text}"]
    )
    assert isinstance(shown.exception, UserError)
    assert f"{option}: {text.split(',')[0]} of client 0 must be a positive number" in str(shown.exception)
