"""A gradient with an averaging beside it, in virtual time: it takes as long as the longer of the two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import swiftfl
from swiftfl.algorithms import AdPsgd
from swiftfl.costs import Costs
from swiftfl.engines import VirtualEngine
from swiftfl.rules import SgdRule
from swiftfl.schedule import Averaging
from worlds import quadratic_setup, resumed, run_to_end, slow

STEPS = 10
PAIR = swiftfl.path(2)


def spent(averaging: Averaging, **costs: Any) -> dict[str, list[float]]:
    """Of client 0, which averages with a client 1 whose gradients take longer than the whole run."""
    setup, _, _ = quadratic_setup(
        AdPsgd(averaging=averaging),
        PAIR,
        method="metropolis",
        epochs=1,
        steps_per_epoch=STEPS,
        costs=Costs(mix=0.0, bandwidth=np.inf, slowdowns=slow({1: 1e6}), **costs),
    )
    engine = VirtualEngine(setup)
    engine.start()
    while engine.world.records[0].steps < STEPS:
        engine.advance(1)
    return {name: [round(seconds, 9) for seconds in times] for name, times in engine.seconds().items()}


def test_a_short_averaging_is_hidden_behind_the_gradient() -> None:
    """Ten steps, each 10 ms of gradient and 4 ms of averaging. Client 1's only averaging, from 4 to 8 ms, is
    over when client 0 adds its first move."""
    after = spent("after", compute=0.010, latency=0.002)
    background = spent("background", compute=0.010, latency=0.002)
    assert (after["compute"][0], after["communication"][0]) == (0.1, 0.04)
    assert {name: times[0] for name, times in background.items()} == {
        "compute": 0.1,
        "communication": 0.0,
        "waiting": 0.0,
    }


def test_of_a_long_averaging_the_rest_counts() -> None:
    """10 ms of gradient, 24 ms of averaging: 14 ms stay in each step. Client 1 asks for the cells just after
    client 0 and has them from 24 to 48 ms: client 0 waits so long to add its first move."""
    background = spent("background", compute=0.010, latency=0.012)
    assert background["compute"][0] == 0.1
    assert background["communication"][0] == pytest.approx(STEPS * 0.014, abs=1e-9)
    assert background["waiting"][0] == pytest.approx(0.024, abs=1e-9)


def test_resumed_anywhere_it_is_the_same_run() -> None:
    """Clients run ahead of the world, so that some averagings begin by an event of their own."""
    costs = Costs(compute=0.01, latency=0.004, jitter=0.01, spread=0.5, slowdowns=slow({2: 3.0}))
    rule = SgdRule(momentum=0.9)

    def world() -> VirtualEngine:
        setup, _, _ = quadratic_setup(
            AdPsgd(rule, seed=1, averaging="background"), swiftfl.ring(6), epochs=8, costs=costs
        )
        return VirtualEngine(setup)

    whole = run_to_end(world())
    assert whole.seconds()["waiting"] != [0.0] * 6
    begun_later = 0
    engine = world()
    engine.start()
    while not engine.over:
        records = engine.world.records
        begun_later += any(r.parked is not None and r.answer is None for r in records)
        if engine.iteration % 7 == 3:
            engine = resumed(engine, world())
        engine.advance(1)
    assert begun_later > 10
    assert engine.seconds() == whole.seconds()
    for mine, theirs in zip(engine.models, whole.models, strict=True):
        np.testing.assert_array_equal(mine, theirs)
