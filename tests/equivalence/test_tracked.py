"""The tracked variant of `benchmarks/tracked.py`, which the library does not offer: its law, and its mass."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import tracked

from swiftfl.algorithms import Swift
from swiftfl.costs import Costs
from swiftfl.graph.directed import directed
from swiftfl.reproduce.laboratory.law import REGIMES, factor, predicted
from swiftfl.rules import SgdRule
from swiftfl.vector import wide
from swiftfl.workload.quadratic import Quadratic


@pytest.mark.parametrize("regime", ["lockstep", "spread", "one", "three"])
def test_its_steps_are_as_long_as_predicted(regime: str) -> None:
    found = factor(REGIMES[regime], tracked.tracked(0.0), tracked.RING, 150)
    assert found == pytest.approx(tracked.predicted_tracked(REGIMES[regime].age), rel=0.02)


def test_all_that_is_tracked_is_the_sum_of_the_gradients() -> None:
    """What clients hold and what is under way, with unequal speeds, slow links and messages that are lost."""
    costs = Costs(compute=1.0, latency=0.7, spread=0.3, loss=0.2)
    problem = Quadratic.random(tracked.CLIENTS, 4, seed=2, noise=0.3)
    engine = tracked.make_engine(tracked.tracked(), problem, costs, 0.05, 40)
    engine.advance(tracked.CLIENTS * 25)
    memories = [record.start.memory for record in engine.world.records]
    held = sum(wide(m["tracked"], m["before"]) for m in memories)
    sent = [wide(m["sent"], m["before"]) for m in memories]
    under_way = np.zeros(4)
    into = directed(tracked.RING, "both").into
    for i, memory in enumerate(memories):
        seen = memory["seen"].reshape(len(into[i]), -1)
        for position, k in enumerate(into[i]):
            under_way += sent[k] - wide(seen[position], memory["before"])
    assert_allclose(held + under_way, sum(m["before"] for m in memories), atol=1e-10)
    assert np.abs(under_way).max() > 0.1  # or there was nothing to lose


def test_curvature_that_one_client_alone_sees_halves_its_stable_steps_against_swifts() -> None:
    """The cause that docs/what-to-use.md names: with the same curvature for all it is not so."""
    regime, swift = REGIMES["spread"], Swift(rule=SgdRule(tracked.MOMENTUM))
    longer = tracked.predicted_tracked(regime.age) / predicted(tracked.OWN, regime.age)
    ratios = [
        longer
        * tracked.largest_step(tracked.tracked(), curvature, regime.costs, 90)
        / tracked.largest_step(swift, curvature, regime.costs, 90)
        for curvature in tracked.CURVATURES.values()
    ]
    alike, half, apart = ratios
    assert alike > 1.2
    assert max(half, apart) < 0.7
