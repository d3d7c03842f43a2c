"""Clipped averages and poisoned clients in the simulators: against a recursion in plain NumPy."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import swiftfl
from swiftfl.algorithms import Swift, dsgd
from swiftfl.engines import SampledEngine, VirtualEngine
from swiftfl.errors import UserError
from swiftfl.experiment.build import build
from swiftfl.experiment.config import Config, parse
from swiftfl.mixing import ClippedMixing
from swiftfl.robust import RobustMixing
from swiftfl.sample import Batch
from swiftfl.transports.codec import Identity, make_codec, tell_whose, transmitted
from swiftfl.transports.poison import POISONS, Poison, PoisonedCodec
from worlds import STEP_SIZE, quadratic_setup, resumed, run_to_end

GRAPH = swiftfl.random_regular(8, 4, seed=1)
NOTHING = np.empty(0, dtype=np.int64)
BAD, B = 3, 0.2


def poisoned(poisons: dict[int, Poison]) -> PoisonedCodec:
    return PoisonedCodec(Identity(), poisons, 5)


def with_poison(kind: str = "scaled", **options: Any) -> Any:
    return partial(poisoned, {BAD: POISONS[kind](**options)})


def mixed(w: dict[int, float], x: np.ndarray, models: dict[int, np.ndarray]) -> np.ndarray:
    """Written from the formula, apart from `swiftfl.mixing`."""
    d = {j: float(np.sqrt(((model - x) ** 2).sum())) for j, model in models.items()}
    tau = min(t for t in (0.0, *d.values()) if sum(w[j] for j in d if d[j] > t) <= 2 * B + 1e-12)
    out: np.ndarray = x.copy()
    for j in d:
        out += w[j] * (min(1.0, tau / d[j]) if d[j] else 1.0) * (models[j] - x)
    return out


def test_sampled_swift_with_a_poisoned_client_is_the_recursion() -> None:
    T = 200
    setup, coefficients, workload = quadratic_setup(
        RobustMixing(Swift(), ClippedMixing(B)), GRAPH, iterations=T, codec=with_poison()
    )
    draws = SampledEngine(setup)
    active = [draws.draw() for _ in range(T)]
    X = [workload.initial(setup.seed) for _ in range(8)]
    counters = [1] * 8
    for i in active:
        w = dict(coefficients.weights(i).of)
        seen = {j: -10 * X[j] if j == BAD else X[j] for j in w}
        g = workload.gradient(X[i], Batch(i, counters[i], NOTHING)).g
        X[i] = mixed(w, X[i], seen) - STEP_SIZE * g
        counters[i] += 1
    engine = run_to_end(SampledEngine(setup))
    np.testing.assert_allclose(np.stack(engine.models), np.stack(X), rtol=0, atol=1e-10)


def test_dsgd_in_virtual_time_with_a_poisoned_client_is_the_recursion() -> None:
    setup, coefficients, workload = quadratic_setup(
        RobustMixing(dsgd(order="average_first"), ClippedMixing(B)),
        GRAPH,
        method="metropolis",
        epochs=4,
        codec=with_poison("drift", rate=0.5),
    )
    X = [workload.initial(setup.seed) for _ in range(8)]
    drift = POISONS["drift"](rate=0.5)
    for c in range(1, 21):
        sent = [drift(x, c, (5, BAD)) if j == BAD else x for j, x in enumerate(X)]
        G = [workload.gradient(X[i], Batch(i, c, NOTHING)).g for i in range(8)]
        halves = [
            mixed(dict(coefficients.weights(i).of), X[i], {j: sent[j] for j in coefficients.weights(i).of})
            for i in range(8)
        ]
        X = [half - STEP_SIZE * g for half, g in zip(halves, G, strict=True)]
    engine = run_to_end(VirtualEngine(setup))
    np.testing.assert_allclose(np.stack(engine.models), np.stack(X), rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", ["scaled", "noise", "drift"])
def test_a_resumed_run_with_poison_is_the_run_without_pause(kind: str) -> None:
    """What a poison counts is saved with the codec that it stands before."""
    setup, _, _ = quadratic_setup(
        RobustMixing(Swift(), ClippedMixing()), GRAPH, iterations=120, codec=with_poison(kind)
    )
    whole = run_to_end(VirtualEngine(setup))
    engine = VirtualEngine(setup)
    engine.start()
    engine.advance(57)
    again = resumed(engine, VirtualEngine(setup))
    again.advance(10**9)
    np.testing.assert_array_equal(np.stack(again.models), np.stack(whole.models))


def test_without_a_rule_the_poisoned_client_draws_the_others_away() -> None:
    """And with one, they stay near the optimum; the run that nobody disturbs is the measure."""

    def off(mixing: bool, codec: Any) -> float:
        algorithm = RobustMixing(Swift(), ClippedMixing()) if mixing else Swift()
        setup, _, _ = quadratic_setup(algorithm, GRAPH, iterations=1600, noise=0.0, codec=codec)
        models = run_to_end(VirtualEngine(setup)).models
        honest = np.mean([model for i, model in enumerate(models) if i != BAD], axis=0)
        undisturbed = np.mean(
            run_to_end(VirtualEngine(replace(setup, algorithm=Swift(), codec=Identity))).models, axis=0
        )
        return float(np.linalg.norm(honest - undisturbed) / np.linalg.norm(undisturbed))

    assert off(False, with_poison()) > 5 * off(True, with_poison())


# --- by configuration ------------------------------------------------------------------------------


def config(**changes: Any) -> Config:
    tree = {
        "topology": {"name": "random_regular", "clients": 8, "options": {"degree": 4}},
        "engine": {"iterations": 60},
        "data": {"batch_size": 64},
    }
    return parse(tree).with_changes(changes)


def models_of(config: Config) -> np.ndarray:
    return np.stack(run_to_end(VirtualEngine(build(config).setup)).models)


def test_a_configuration_has_rule_and_poison() -> None:
    plain = models_of(config())
    np.testing.assert_array_equal(
        plain, models_of(config(**{"algorithm.mixing": "clipped", "algorithm.tolerate": 0.0}))
    )
    clipped = config(**{"algorithm.mixing": "clipped"})
    assert clipped.algorithm.model_extra == {
        **config().algorithm.model_extra,  # type: ignore[dict-item]
        "tolerate": None,
    }
    assert (models_of(clipped) != plain).any()
    bad = config(**{"faults.poison": [{"client": 3, "kind": "noise", "scale": 2.0}]})
    assert bad.faults.model_dump() == {"poison": [{"client": 3, "kind": "noise", "scale": 2.0}]}
    assert parse(json.loads(bad.model_dump_json())) == bad
    assert (models_of(bad) != plain).any()
    back = clipped.with_changes({"algorithm.mixing": "plain"})
    assert back == config(), "options of the rule go with it"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"algorithm.mixing": "cliped"}, "there is no mixing rule 'cliped': did you mean clipped"),
        ({"algorithm.tolerate": 0.1}, "tolerate.*mixing clipped, mixing trimmed"),
        ({"algorithm.mixing": "clipped", "algorithm.tolerate": 0.5}, "below 0.5"),
        ({"algorithm.mixing": "clipped", "algorithm.name": "adpsgd"}, "no effect on adpsgd"),
        ({"algorithm.mixing": "clipped", "topology.name": "ring"}, "on a ring nobody can be tolerated"),
        ({"faults.poison": [{"client": 8}]}, "there is no client 8, only 0 to 7"),
        ({"faults.poison": [{"client": 1}, {"client": 1}]}, "client 1 twice"),
        ({"faults.poison": [{"client": 1, "kind": "nois"}]}, "did you mean noise"),
        ({"faults.poison": [{"client": 1, "scale": 2}]}, "scale"),
        ({"faults.poison": [{"client": 1}], "algorithm.name": "allreduce"}, "not allreduce"),
    ],
)
def test_what_cannot_be_meant_is_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        build(config(**changes))


def test_an_algorithm_of_ones_own_that_does_not_mix_is_told_so() -> None:
    from swiftfl.algorithms import AdPsgd

    setup, _, _ = quadratic_setup(AdPsgd(), GRAPH, iterations=40)
    robust = replace(setup, algorithm=RobustMixing(AdPsgd(), ClippedMixing()))
    with pytest.raises(UserError, match="adpsgd averages by AverageWith, not by Mix"):
        run_to_end(VirtualEngine(robust))


@pytest.mark.parametrize("codec", ["int8", "topk:0.5"])
def test_a_poison_stands_before_any_codec(codec: str) -> None:
    """Also before those that send changes only: what arrives is what the codec makes of a poisoned model."""
    x = np.linspace(-1.0, 1.0, 64).astype(np.float32)
    both, alone = PoisonedCodec(make_codec(codec)(), {BAD: POISONS["scaled"]()}, 5), make_codec(codec)()
    tell_whose(both, BAD)
    for k in range(1, 4):
        np.testing.assert_array_equal(transmitted(both, k * x), transmitted(alone, (k * x) * np.float32(-10)))
