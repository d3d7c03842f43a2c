"""Simulated runs with a codec: formulas, checkpoints that keep its memory, and shorter journeys."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import swiftfl
from feedback_codec import HalfWithFeedback
from swiftfl.algorithm import Algorithm
from swiftfl.algorithms import Swift, dsgd
from swiftfl.costs import Costs
from swiftfl.engines import SampledEngine, Setup, VirtualEngine
from swiftfl.rules import SgdRule
from swiftfl.schedule import every
from swiftfl.transports.codec import Identity, MakeCodec, transmitted
from swiftfl.transports.registry import make_codec
from swiftfl.verbs import Verb
from worlds import quadratic_setup, resumed, run_to_end

SWIFT, DSGD = Swift(every(1), SgdRule(0.9)), dsgd(SgdRule(0.9))
COSTS = Costs(compute=0.01, latency=1e-4, bandwidth=1e6, send=1e-4)


def setup_of(algorithm: Algorithm[Verb]) -> Setup:
    method = "ccs" if algorithm is SWIFT else "metropolis"
    setup, _, _ = quadratic_setup(algorithm, swiftfl.ring(4), method=method, epochs=6, dimension=40)
    return replace(setup, costs=COSTS, codec=HalfWithFeedback)


@pytest.mark.parametrize("engine", [VirtualEngine, SampledEngine])
@pytest.mark.parametrize("algorithm", [SWIFT, DSGD], ids=["swift", "dsgd"])
@pytest.mark.parametrize("codec", [HalfWithFeedback, *map(make_codec, ("bf16", "int8", "topk:0.1"))])
def test_a_resumed_run_is_the_run_without_pause(
    engine: type, algorithm: Algorithm[Verb], codec: MakeCodec
) -> None:
    setup = replace(setup_of(algorithm), codec=codec)
    whole = run_to_end(engine(setup)).models
    paused = engine(setup)
    paused.start()
    paused.advance(37)
    going_on = resumed(paused, engine(setup))
    going_on.advance(10**9)
    for mine, theirs in zip(going_on.models, whole, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_rounds_are_what_the_formula_says() -> None:
    """D-SGD by hand: own model as it is, neighbours' as their codecs transmit them."""
    setup = replace(setup_of(dsgd()), network=None)
    n, codecs = setup.n, [HalfWithFeedback() for _ in range(setup.n)]
    states = [setup.first_state(setup.workload.initial(setup.seed)) for _ in range(n)]
    for c in range(1, int(setup.steps_of(0)) + 1):
        half = []
        for i in range(n):
            me, s = setup.client(i), states[i]
            slope = setup.workload.gradient(s.x, me.batch(c))
            move, _ = setup.algorithm.rule.update(slope.g, s.x, me.step_size(c), s.memory)
            half.append(s.x + move)
        sent = [transmitted(codec, x) for codec, x in zip(codecs, half, strict=True)]
        for i in range(n):
            w = setup.weights[i]
            mixed = half[i] * w.own
            for k, coefficient in w.of.items():
                mixed = mixed + sent[k] * coefficient
            states[i] = replace(states[i], x=mixed, c=c + 1)
    for mine, state in zip(run_to_end(VirtualEngine(setup)).models, states, strict=True):
        np.testing.assert_allclose(mine, state.x, rtol=1e-12)


def test_shorter_messages_travel_faster() -> None:
    setup = setup_of(DSGD)
    plain = run_to_end(VirtualEngine(replace(setup, codec=Identity))).now
    rounds, saved = setup.steps_of(0), 40 * (8 - 2) / COSTS.bandwidth
    assert plain - run_to_end(VirtualEngine(setup)).now == pytest.approx(rounds * saved, rel=1e-6)
