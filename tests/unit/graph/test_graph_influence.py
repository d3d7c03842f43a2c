"""Influence scores."""

from __future__ import annotations

import numpy as np
import pytest

from swiftfl import given, is_uniform, proportional_to, uniform
from swiftfl.errors import UserError


def test_uniform_and_proportional() -> None:
    assert uniform(1).tolist() == [1.0]
    assert is_uniform(uniform(7))
    assert is_uniform(proportional_to([30] * 7))
    p = proportional_to([10, 30, 60])
    assert p.tolist() == pytest.approx([0.1, 0.3, 0.6])
    assert p.sum() == pytest.approx(1.0, abs=1e-15)
    assert not p.flags.writeable


def test_given_is_renormalised_within_the_tolerance() -> None:
    p = given([0.3333333, 0.3333333, 0.3333333], 3)
    assert p.sum() == pytest.approx(1.0, abs=1e-15)
    assert is_uniform(p)
    assert not is_uniform(given([0.5 + 1e-9, 0.5 - 1e-9]))


def test_normalised_scores_keep_their_bits() -> None:
    for seed in range(20):
        p = proportional_to(np.random.default_rng(seed).lognormal(0, 2, 17))
        assert (given(p) == p).all()


def test_given_does_not_change_or_keep_the_callers_array() -> None:
    mine = np.array([0.25, 0.75])
    p = given(mine)
    mine[0] = 9.0
    assert p.tolist() == [0.25, 0.75]
    assert mine.flags.writeable


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([0.5, 0.0, 0.5], "client 1: influence 0 must be"),
        ([1.5, -0.5], "client 1: influence -0.5"),
        ([0.5, float("nan")], "client 1: influence nan"),
        ([float("inf"), 0.5], "client 0: influence inf"),
        ([0.5, 0.6], "sums to 1.1"),
        ([0.5, 0.5 + 2e-6], "sums to"),
        ([], "no scores"),
        ([[0.5, 0.5]], "shape (1, 2)"),
        (["a"], "must be a number"),
        ([1.0, 1e-150], "client 1: influence is below"),
    ],
)
def test_bad_scores(values: list[float], told: str) -> None:
    with pytest.raises(UserError) as error:
        given(values)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("sizes", "told"), [([3, 0], "client 1: size 0"), ([], "no sizes")])
def test_bad_sizes(sizes: list[int], told: str) -> None:
    with pytest.raises(UserError, match=told):
        proportional_to(sizes)


def test_huge_sizes_do_not_overflow() -> None:
    assert proportional_to([1e308, 1e308]).tolist() == [0.5, 0.5]
