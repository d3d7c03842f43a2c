"""Where there are many models, older ones are given up early: no answer changes, and memory is less."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import swiftfl
from swiftfl.algorithms import Swift
from swiftfl.client import Client, State
from swiftfl.costs import Costs
from swiftfl.engines.simulation import superseded, world
from swiftfl.engines.simulation.virtual import VirtualEngine
from swiftfl.experiment.build import build
from swiftfl.experiment.recipes import digits
from swiftfl.graph import Topology
from swiftfl.rules import SgdRule, applied
from swiftfl.schedule import every
from swiftfl.verbs import Fetch, Gradient, Mix, Publish, WaitFree
from worlds import quadratic_setup, resumed, run_to_end, slow

GRAPHS = {
    "ring": swiftfl.ring(12),
    "hubs": swiftfl.barabasi_albert(14, 2, seed=1),
    "star": swiftfl.star(9),
    "complete": swiftfl.complete(7),
}


def engine_of(graph: Topology, costs: Costs, **options: Any) -> VirtualEngine:
    setup, _, _ = quadratic_setup(Swift(every(1), SgdRule(0.9)), graph, costs=costs, **options)
    return VirtualEngine(setup)


@settings(max_examples=40, deadline=None)
@given(
    graph=st.sampled_from(sorted(GRAPHS)),
    latency=st.sampled_from([0.0, 0.0005, 0.02, 0.2]),
    factor=st.sampled_from([1.0, 1.7, 40.0]),
    per_round=st.sampled_from([1, 3, 1000]),
)
def test_no_answer_changes(graph: str, latency: float, factor: float, per_round: int) -> None:
    costs = Costs(latency=latency, slowdowns=slow({1: factor, 4: 1.1}))
    plain = run_to_end(engine_of(GRAPHS[graph], costs, epochs=6))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world, "MANY_BYTES", 0)
        patch.setattr(superseded, "PER_ROUND", per_round)
        early = run_to_end(engine_of(GRAPHS[graph], costs, epochs=6))
    assert [bytes(x) for x in early.models] == [bytes(x) for x in plain.models]
    assert early.now == plain.now


def most_models(clients: int, pause: bool = False) -> float:
    """Per client of a ring of equals, at most, while each makes some steps; after a pause, if so."""
    changes = {
        "topology.clients": clients,
        "data.partition": "bootstrap:32",
        "engine.epochs": 6,
        "engine.workers": 1,
    }
    parts = build(digits().with_changes(changes))
    engine = parts.engine("virtual")
    engine.start()
    engine.advance(2 * clients)
    if pause:
        engine = resumed(engine, parts.engine("virtual"))
        engine.advance(clients)  # what was not given up before the pause is, when a newer one comes
    most = 0
    while not engine.over:
        engine.advance(100)
        most = max(most, engine.models_in_memory)
    return most / clients


def test_a_ring_of_equals_keeps_one_model_per_client(monkeypatch: pytest.MonkeyPatch) -> None:
    before = most_models(1000)
    monkeypatch.setattr(world, "MANY_BYTES", 0)
    assert before >= 1.9
    assert most_models(1000) <= 1.25  # a sixteenth or a piece waits to be looked through, or is under way
    assert most_models(1000, pause=True) <= 1.25


class SendsToOne:
    """An algorithm that sends its model to one neighbour at a time, and fetches from all of them."""

    name, rule = "sends-to-one", SgdRule()
    in_rounds: ClassVar[bool] = False

    def step(self, me: Client, s: State) -> Generator[WaitFree, object, State]:
        to = (me.neighbours[s.c % len(me.neighbours)],)
        yield from Publish(s.x, to, version=s.c)
        slope = yield from Gradient(s.x, me.batch(s.c))
        inbox = yield from Fetch(me.neighbours)
        half = yield from Mix(me.w, s.x, inbox)
        after = applied(self.rule, half, slope, s.x, me.step_size(s.c), s.memory)
        return State(after.x, s.c + 1, after.memory)


def test_nothing_is_given_up_that_others_than_its_receivers_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "MANY_BYTES", 0)
    costs = Costs(latency=0.01, slowdowns=slow({2: 9.0}))
    setup, _, _ = quadratic_setup(SendsToOne(), swiftfl.ring(8), epochs=5, costs=costs)
    engine = run_to_end(VirtualEngine(setup))
    assert np.isfinite(np.stack(engine.models)).all()


def test_a_run_that_goes_on_from_a_checkpoint_gives_up_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "MANY_BYTES", 0)
    graph, costs = GRAPHS["hubs"], Costs(latency=0.004, slowdowns=slow({1: 1.9}))
    whole = run_to_end(engine_of(graph, costs, epochs=6))
    first = engine_of(graph, costs, epochs=6)
    first.start()
    first.advance(77)
    again = resumed(first, engine_of(graph, costs, epochs=6))
    again.advance(10**9)
    assert [bytes(x) for x in again.models] == [bytes(x) for x in whole.models]


def test_a_client_alone_has_nobody_to_send_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "MANY_BYTES", 0)
    assert len(run_to_end(engine_of(Topology(1, []), Costs(), epochs=3)).models) == 1


def test_whoever_has_finished_keeps_its_model_and_nothing_else_of_its_last_step() -> None:
    engine = run_to_end(engine_of(GRAPHS["ring"], Costs(latency=0.01), epochs=3))
    assert all(record.finished for record in engine.world.records)
    assert not any(record.replies or record.generator for record in engine.world.records)
