"""With constant gradients the mean model moves with step_size / (1 - (1 - w_ii)(1 - a)).

With corrected steps it moves with step_size. a is the mean age of the models that are averaged. The
predictions here are formulas: renewal theory for the age, the law for the factor (docs/step-size.md).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import swiftfl
from swiftfl.algorithms import Swift, SwiftLookAhead
from swiftfl.api.chosen import Arguments
from swiftfl.costs import Costs
from swiftfl.engines import VirtualEngine
from swiftfl.engines.ages import Pace
from swiftfl.errors import UserError
from swiftfl.experiment.config import Config
from swiftfl.reproduce.laboratory.law import (
    CV2,
    FREE,
    REGIMES,
    SPREAD,
    STEP_SIZE,
    Observed,
    factor,
    linear_setup,
)
from swiftfl.rules import SgdRule
from swiftfl.schedule import every
from swiftfl.settings import SettingError
from worlds import resumed, slow

REGIME_NAMES = ("lockstep", "spread", "one", "sampled")
GRAPHS = {"ring": (swiftfl.ring(16), 1 / 3), "complete": (swiftfl.complete(6), 1 / 6)}


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("name", REGIME_NAMES)
def test_predicted_and_measured(name: str, graph: str) -> None:
    (topology, own), regime = GRAPHS[graph], REGIMES[name]
    watched = Observed(Swift())
    measured = factor(regime, watched, topology)
    assert np.mean(watched.seen) == pytest.approx(regime.age, abs=0.05)
    assert measured == pytest.approx(1 / (1 - (1 - own) * (1 - regime.age)), rel=0.03)
    assert factor(regime, Swift(corrected=True), topology) == pytest.approx(1.0, abs=0.03)


def test_ages_by_renewal_theory() -> None:
    """(1 + cv^2) / 2 of log-normal steps, and the journey."""
    ages = {name: REGIMES[name].age for name in ("lockstep", "spread", "one", "three", "sampled")}
    half = math.exp(0.2**2) / 2
    assert ages == pytest.approx(
        {"lockstep": 1.0, "spread": half + 0.02, "one": half + 1.0, "three": half + 3.0, "sampled": 1.0}
    )


VARIANTS: dict[str, tuple[Any, float]] = {
    "C_2": (Swift(every(2), corrected=True), 1.0),
    "broadcast after": (Swift(broadcast="after", corrected=True), 1.0),
    "momentum": (Swift(rule=SgdRule(0.9), corrected=True), 10.0),
    "look-ahead": (SwiftLookAhead(rule=SgdRule(0.9), corrected=True), 10.0),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_corrected_steps_of_every_variant(variant: str) -> None:
    algorithm, moves = VARIANTS[variant]
    for name in ("spread", "one"):
        assert factor(REGIMES[name], algorithm, swiftfl.ring(16)) == pytest.approx(moves, rel=0.03)


def test_without_lockstep_the_authors_order_is_slower() -> None:
    """What is published after the gradient is one step older: with age 1 + a' the same law holds."""
    own, age = 1 / 3, 1 + (1 + CV2) / 2 + 0.02
    found = factor(REGIMES["spread"], Swift(broadcast="after"), swiftfl.ring(16))
    assert found == pytest.approx(1 / (1 - (1 - own) * (1 - age)), rel=0.03)


def test_it_moves_along_the_mean_gradient_whatever_the_speeds() -> None:
    """Slow clients keep their weight in the objective, with correction and without."""
    graph, n = swiftfl.ring(12), 12
    gradients = np.eye(n)  # how far coordinate i moves is client i's weight
    costs = Costs(**FREE, latency=0.01, spread=SPREAD, slowdowns=slow({0: 4.0, 5: 2.0}))
    lengths = np.array([4.0, 1, 1, 1, 1, 2.0, 1, 1, 1, 1, 1, 1])
    for corrected in (False, True):
        engine = VirtualEngine(linear_setup(Swift(corrected=corrected), graph, costs, 2000, gradients))
        engine.start()
        engine.advance(10**9)
        weights = np.mean(engine.models, axis=0)
        np.testing.assert_allclose(weights / weights.sum(), 1 / n, atol=0.007)
        if corrected:
            moved = -weights.sum() * lengths.mean() / engine.now  # per mean step
            assert moved == pytest.approx(STEP_SIZE, rel=0.05)


def test_a_stopped_neighbour_does_not_make_steps_long() -> None:
    """Client 0 has finished; its last model gets older and older, and counts as old as `OLDEST`."""
    graph = swiftfl.ring(4)
    setup = linear_setup(Swift(corrected=True), graph, Costs(**FREE, latency=0.01, spread=SPREAD), 100)
    engine = VirtualEngine(setup)
    engine.start()
    engine.world.records[0].limit = 5
    engine.advance(10**9)
    assert np.abs(np.stack(engine.models)).max() < 400 * STEP_SIZE


def test_ages_survive_a_checkpoint() -> None:
    costs = Costs(**FREE, latency=0.3, spread=SPREAD)
    setup = linear_setup(Swift(corrected=True), swiftfl.ring(6), costs, 60)
    whole = VirtualEngine(setup)
    whole.start()
    whole.advance(150)
    going_on = resumed(whole, VirtualEngine(setup))
    for engine in (whole, going_on):
        engine.advance(10**9)
    assert all((x == y).all() for x, y in zip(whole.models, going_on.models, strict=True))


def test_a_pace_follows_a_client_that_slows_down_or_begins_anew() -> None:
    pace = Pace()
    assert pace.age(0.0, 1.0) is None
    time = 0.0
    for version in range(1, 400):
        time += 1.0 if version < 200 else 3.0
        pace.note(version, time)
    assert pace.age(time, time + 1.5) == pytest.approx(0.5)
    pace.note(3, time + 10)  # an earlier version: it went back to a save
    assert pace.age(time + 10, time + 11) is None
    pace.note(4, time + 12)
    assert pace.age(time + 12, time + 13) == pytest.approx(0.5)


def test_the_setting() -> None:
    short = Config.model_validate({"algorithm": {"step_size": "corrected"}})
    assert short.algorithm.step_size.corrected
    assert not short.with_changes({"algorithm.name": "dsgd"}).algorithm.step_size.corrected
    with pytest.raises(SettingError, match="has no effect on dsgd, only on swift"):
        Config().with_changes({"algorithm.name": "dsgd", "algorithm.step_size.corrected": True})


def test_the_setting_beside_an_optimizer() -> None:
    """The optimizer brings a whole section; a setting inside it that it does not know of stays."""
    found, optimizer = Arguments(), swiftfl.SGD(lr=0.3, momentum=0.9)
    found.choose("settings", {"algorithm.step_size.corrected": True})
    found.choose("optimizer", optimizer.changes())
    step_size = found.config().algorithm.step_size
    assert (step_size.initial, step_size.corrected) == (0.3, True)
    found = Arguments()
    found.choose("settings", {"algorithm.step_size.initial": 0.1})
    with pytest.raises(UserError, match="optimizer and settings say the same"):
        found.choose("optimizer", optimizer.changes())
