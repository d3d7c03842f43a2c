"""Many mixes as one product give the same bits as one by one, also in whole runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import swiftfl
from swiftfl.algorithms import Swift, dsgd
from swiftfl.engines import VirtualEngine
from swiftfl.engines.simulation import batched_mix as mixing
from swiftfl.vector import Weights, mix
from swiftfl.verbs import Mix
from worlds import clocks, quadratic_setup, resumed


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6), clients=st.integers(1, 12), double=st.booleans(), lost=st.booleans())
def test_the_product_is_the_mix(seed: int, clients: int, double: bool, lost: bool) -> None:
    draw = np.random.default_rng(seed)
    models = [draw.standard_normal(33).astype(np.float64 if double else np.float32) for _ in range(clients)]
    verbs = []
    for i in range(clients):
        others = [k for k in range(clients) if k != i and draw.random() < 0.6]
        w = draw.dirichlet(np.ones(len(others) + 1)).tolist()
        inbox = {k: models[k] for k in others if not (lost and draw.random() < 0.3)}
        verbs.append(Mix(Weights(w[0], dict(zip(others, w[1:], strict=True))), models[i], inbox))
    for half, verb in zip(mixing.mix_many(verbs), verbs, strict=True):
        assert half.dtype == verb.x.dtype
        assert (half == mix(verb.w, verb.x, verb.inbox)).all()


@pytest.mark.parametrize("algorithm", [Swift(), dsgd()], ids=lambda algorithm: algorithm.name)
def test_a_run_is_the_same_with_and_without(algorithm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(together: bool, pauses: int = 0, most: int = 10**6) -> VirtualEngine:
        monkeypatch.setattr(mixing, "WAITING_BYTES", most)
        monkeypatch.setattr(mixing, "MANY_NEIGHBOURS", 2 if together else 10**9)
        monkeypatch.setattr(mixing, "SMALL_MODEL", 0)
        monkeypatch.setattr(mixing, "LARGEST_STACK", 7 * 2 * 10)  # several parts
        make = lambda: VirtualEngine(quadratic_setup(algorithm, swiftfl.ring(70), iterations=1120)[0])  # noqa: E731
        engine = make()
        engine.start()
        for _ in range(pauses):
            engine.advance(97)
            engine = resumed(engine, make())
        engine.advance(10**9)
        return engine

    plain = run(together=False)
    served: list[int] = []
    original = mixing.BatchedMixes.serve

    def counted(mixes: mixing.BatchedMixes) -> None:
        served.append(len(mixes.waiting))
        original(mixes)

    monkeypatch.setattr(mixing.BatchedMixes, "serve", counted)
    for engine in (run(together=True), run(together=True, pauses=5)):
        assert engine.iteration == 1120
        assert all((x == y).all() for x, y in zip(plain.models, engine.models, strict=True))
        assert clocks(engine) == clocks(plain)
    assert max(served) == 70
    served.clear()
    few = run(together=True, pauses=2, most=20 * plain.models[0].nbytes)  # no more than 20 wait at a time
    assert all((x == y).all() for x, y in zip(plain.models, few.models, strict=True))
    assert clocks(few) == clocks(plain)
    assert max(served) == 20
