"""Clipped and trimmed averages against their formulas, in plain NumPy and by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swiftfl.errors import UserError
from swiftfl.mixing import MIXINGS, ClippedMixing, MixRule, TrimmedMixing, mix_by
from swiftfl.mixing.by_distance import distance, threshold
from swiftfl.vector import Vector, Weights, mix


def clipped_by_formula(w: dict[int, float], x: Vector, models: dict[int, Vector], b: float) -> Vector:
    """x + sum_j w_j min(1, tau / d_j) (x_j - x); tau by trying every d that it could be."""
    d = {j: float(np.sqrt(((model - x) ** 2).sum())) for j, model in models.items()}
    tau = min(t for t in (0.0, *d.values()) if sum(w[j] for j in d if d[j] > t) <= 2 * b + 1e-12)
    out = x.copy()
    for j, model in models.items():
        out = out + w[j] * (min(1.0, tau / d[j]) if d[j] else 1.0) * (model - x)
    return out


def trimmed_by_formula(w: dict[int, float], x: Vector, models: dict[int, Vector], b: float) -> Vector:
    """x + sum_j u_j (x_j - x), where u is w without a weight of b of the farthest."""
    order = sorted(models, key=lambda j: -float(np.linalg.norm(models[j] - x)))
    before = np.concatenate(([0.0], np.cumsum([w[j] for j in order])))
    out = x.copy()
    for place, j in enumerate(order):
        removed = min(before[place + 1], b) - min(before[place], b)
        out = out + (w[j] - removed) * (models[j] - x)
    return out


@st.composite
def meetings(draw: Any) -> tuple[Weights, Vector, dict[int, Vector], float]:
    degree = draw(st.integers(0, 7))
    raw = draw(st.lists(st.integers(1, 20), min_size=degree + 1, max_size=degree + 1))
    weights = np.array(raw) / sum(raw)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size = draw(st.sampled_from([1, 3, 20]))
    x = rng.normal(size=size)
    scales = draw(st.lists(st.sampled_from([0.0, 0.1, 1.0, 50.0]), min_size=degree, max_size=degree))
    models = {k + 1: x + scale * rng.normal(size=size) for k, scale in enumerate(scales)}
    for k in list(models):
        if draw(st.integers(0, 4)) == 0:
            del models[k]  # who is not there
    w = Weights(float(weights[0]), {k + 1: float(weights[k + 1]) for k in range(degree)})
    return w, x, models, draw(st.sampled_from([0.0, 0.05, 0.1, 0.2, 1 / 3, 0.49]))


@given(meetings())
def test_clipped_is_its_formula(meeting: tuple[Weights, Vector, dict[int, Vector], float]) -> None:
    w, x, models, b = meeting
    got = ClippedMixing(b).mix(w, x, models)
    np.testing.assert_allclose(got, clipped_by_formula(dict(w.of), x, models, b), rtol=0, atol=1e-9)


@given(meetings())
def test_trimmed_is_its_formula(meeting: tuple[Weights, Vector, dict[int, Vector], float]) -> None:
    w, x, models, b = meeting
    got = TrimmedMixing(b).mix(w, x, models)
    np.testing.assert_allclose(got, trimmed_by_formula(dict(w.of), x, models, b), rtol=0, atol=1e-9)


@given(meetings())
def test_what_has_nothing_to_clip_is_the_plain_average_bit_for_bit(
    meeting: tuple[Weights, Vector, dict[int, Vector], float],
) -> None:
    w, x, models, _ = meeting
    for rule in (ClippedMixing(0.0), TrimmedMixing(0.0)):
        np.testing.assert_array_equal(rule.mix(w, x, models), mix(w, x, models))
    for name in ("clipped", "trimmed"):
        assert MIXINGS[name](tolerate=0.0) is None, "the plain path itself"
    assert MIXINGS["plain"]() is None


def test_clipped_by_hand() -> None:
    """Five of weight 1/6: distances 1, 2, 3, 4, 100 and b = 1/6. Beyond 3 is 2b, so that tau is 3."""
    w = Weights(1 / 6, dict.fromkeys(range(5), 1 / 6))
    models = {k: np.array([d, 0.0]) for k, d in enumerate([1.0, 2.0, 3.0, 4.0, 100.0])}
    x = np.zeros(2)
    assert threshold(w.of, {k: m[0] for k, m in models.items()}, 1 / 6) == 3.0
    np.testing.assert_allclose(ClippedMixing(1 / 6).mix(w, x, models), [(1 + 2 + 3 + 3 + 3) / 6, 0.0])
    np.testing.assert_allclose(TrimmedMixing(1 / 6).mix(w, x, models), [(1 + 2 + 3 + 4) / 6, 0.0])
    np.testing.assert_allclose(TrimmedMixing(0.25).mix(w, x, models), [(1 + 2 + 3 + 2) / 6, 0.0])


def test_without_a_number_each_client_tolerates_its_heaviest_neighbour() -> None:
    w = Weights(0.2, {1: 0.3, 2: 0.1, 3: 0.2, 4: 0.2})
    models = {k: np.array([float(k)]) for k in w.of}
    x = np.zeros(1)
    for kind in (ClippedMixing, TrimmedMixing):
        np.testing.assert_array_equal(kind().mix(w, x, models), kind(0.3).mix(w, x, models))


@pytest.mark.parametrize("rule", [ClippedMixing(), TrimmedMixing()])
def test_a_neighbour_cannot_move_a_client_farther_than_the_honest_ones(rule: MixRule) -> None:
    """Whatever one of five sends, the client moves no farther than weights times the others' distances."""
    w = Weights(1 / 6, dict.fromkeys(range(5), 1 / 6))
    rng = np.random.default_rng(0)
    x = rng.normal(size=30)
    honest = {k: x + rng.normal(size=30) for k in range(4)}
    farthest = max(float(np.linalg.norm(model - x)) for model in honest.values())
    for scale in (0.0, 1.0, 1e3, 1e30, 1e200):
        bad = {4: scale * rng.normal(size=30)}
        moved = float(np.linalg.norm(rule.mix(w, x, {**honest, **bad}) - x))
        assert moved <= 5 / 6 * farthest + 1e-9


def test_a_ring_tolerates_nobody() -> None:
    with pytest.raises(UserError, match=r"at client 3, whose neighbours weigh 0\.667 together"):
        ClippedMixing().check(3, Weights(1 / 3, {2: 1 / 3, 4: 1 / 3}))
    with pytest.raises(UserError, match="ring"):
        TrimmedMixing(0.4).check(0, Weights(0.4, {1: 0.2, 2: 0.2, 3: 0.2}))
    ClippedMixing().check(0, Weights(0.4, {1: 0.2, 2: 0.2, 3: 0.2}))
    ClippedMixing().check(0, Weights(1.0, {}))


def test_running_buffers_are_clipped_on_their_own() -> None:
    """Else a wild buffer would be let through by many parameters that are alike, or make these count less."""
    w = Weights(0.2, dict.fromkeys(range(4), 0.2))
    rng = np.random.default_rng(1)
    x = rng.normal(size=12)
    models = {k: x + rng.normal(size=12) for k in range(4)}
    models[3] = models[3].copy()
    models[3][-2:] = 1e6
    rule = ClippedMixing(0.2)
    got = mix_by(rule, w, x, models, 2)
    for part in (slice(0, 10), slice(10, 12)):
        expected = clipped_by_formula(dict(w.of), x[part], {k: m[part] for k, m in models.items()}, 0.2)
        np.testing.assert_allclose(got[part], expected, atol=1e-9)
    assert np.abs(got[-2:] - x[-2:]).max() < 10


def test_a_distance_is_one_number_whatever_its_place_in_memory() -> None:
    rng = np.random.default_rng(2)
    x, y = (rng.normal(size=100_000).astype(np.float32) for _ in range(2))
    expected = float(np.linalg.norm(x.astype(np.float64) - y.astype(np.float64)))
    found = set()
    for offset in range(5):
        space = np.zeros(100_010, np.float32)
        space[offset : offset + 100_000] = x
        found.add(distance(space[offset : offset + 100_000], y))
    assert len(found) == 1
    assert found.pop() == pytest.approx(expected, rel=1e-5)
    huge = np.full(10, 3e38, np.float32)
    assert distance(huge, -huge) == np.inf or distance(huge, -huge) > 1e38
    assert distance(np.full(2, 1e300), np.zeros(2)) == np.inf
