"""Simulated engines as a loop sees them: errors, bounds, losses of everybody, steps that are not finite."""

from __future__ import annotations

import dataclasses
import gc
import json
import logging
import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

import swiftfl
from makers import MAKERS
from swiftfl.algorithms import Swift
from swiftfl.engines import SampledEngine, VirtualEngine
from swiftfl.engines.dynamics import Change, Dynamics, Rates
from swiftfl.engines.engine import SimulatedEngine
from swiftfl.engines.membership import Membership
from swiftfl.engines.simulation import checkpoint
from swiftfl.engines.threads import threads_kept
from swiftfl.errors import UserError
from swiftfl.experiment.recipes import recipe
from swiftfl.experiment.run import run
from swiftfl.rules import SgdRule
from swiftfl.sample import Batch, Slope
from swiftfl.vector import Vector
from swiftfl.workload.quadratic import Quadratic
from worlds import quadratic_setup, resumed, run_to_end

ENGINES: dict[str, Any] = {"virtual": VirtualEngine, "sampled": SampledEngine}
GRAPH = swiftfl.ring_of_cliques(8, clusters=2)
every_engine = pytest.mark.parametrize("engine", ENGINES)
every_algorithm = pytest.mark.parametrize("name", MAKERS)


@every_engine
def test_an_engine_is_started_once_and_before_it_advances(engine: str) -> None:
    made = ENGINES[engine](quadratic_setup(Swift())[0])
    with pytest.raises(UserError, match="has not been started"):
        made.advance(1)
    made.start()
    made.advance(1)
    with pytest.raises(UserError, match="has been started already"):
        made.start()
    made.close()
    made.close()


@every_engine
def test_starting_keeps_torch_and_numpy_to_one_thread(engine: str) -> None:
    def of_numpy() -> set[int]:
        return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}

    with threads_kept(), threadpool_limits(limits=2, user_api="blas"):
        torch.set_num_threads(2)
        if of_numpy() != {2}:
            pytest.skip(
                "NumPy's linear algebra cannot have two threads here: one processor, or another library"
            )
        with threads_kept():
            ENGINES[engine](quadratic_setup(Swift())[0]).start()
            assert (torch.get_num_threads(), of_numpy()) == (1, {1})
        assert (torch.get_num_threads(), of_numpy()) == (2, {2})


@every_engine
def test_both_fit_the_protocol_of_engines(engine: str) -> None:
    made: SimulatedEngine = run_to_end(ENGINES[engine](quadratic_setup(Swift(), epochs=2)[0]))
    assert made.over
    assert made.epochs() == [2.0] * 6
    assert set(made.seconds()) == {"compute", "communication", "waiting"}
    assert made.models_in_memory >= 6
    loss = made.take_train_loss()
    assert loss is not None
    assert math.isfinite(loss)
    assert made.take_train_loss() is None
    assert made.figures()["discarded"] == 0
    assert made.discarding() == []


def test_advance_returns_after_so_many_seconds() -> None:
    engine = VirtualEngine(quadratic_setup(Swift(), iterations=10**8)[0])
    engine.start()
    began = time.monotonic()
    engine.advance(10**8, seconds=0.05)
    assert time.monotonic() - began < 5
    assert 0 < engine.iteration < 10**8


# --- a network in which nobody stays ---------------------------------------------------------------


def changing(changes: Sequence[Change] = (), rates: Rates = Rates(), **options: Any) -> VirtualEngine:
    dynamics = Dynamics(tuple(changes), rates)
    network = lambda: Membership(GRAPH, [1 / 8] * 8, "ccs", dynamics, 5)  # noqa: E731
    return VirtualEngine(quadratic_setup(Swift(), GRAPH, network=network, **options)[0])


def test_advance_returns_though_nobody_ever_finishes_a_step() -> None:
    """Clients crash and return a million times a second: a gradient takes 10 ms."""
    engine = changing(rates=Rates(crash=1e6, come_back=1e6), epochs=1)
    engine.start()
    engine.advance(16, seconds=0.2)
    assert engine.iteration == 0
    assert engine.now < 0.01
    assert not engine.over
    engine.advance(1)  # by the number of events, without a look at the clock
    assert not engine.over


def test_a_checkpoint_of_many_planned_changes_copies_none_and_looks_for_garbage_seldom() -> None:
    """Whoever stops such a run waits for its checkpoint."""
    engine = changing(rates=Rates(crash=1e6, come_back=1e6), epochs=1)
    engine.start()
    while len(engine.world.events.heap) < 20_000:
        engine.advance(16)
    assert engine.churn is not None
    looks: list[str] = []
    note = lambda phase, about: looks.append(phase)  # noqa: E731
    gc.callbacks.append(note)
    try:
        saved = checkpoint.save(engine)
    finally:
        gc.callbacks.remove(note)
    assert len(looks) <= 8  # of a hundred; each is told twice
    planned = saved.tree["churn"]["planned"]
    assert len(planned) > 5_000
    for number, change in planned:
        assert change is vars(engine.churn._planned[number])
    again = changing(rates=Rates(crash=1e6, come_back=1e6), epochs=1)
    checkpoint.restore(again, checkpoint.Checkpoint(json.loads(json.dumps(saved.tree)), saved.arrays))
    assert again.churn is not None
    assert again.churn._planned == engine.churn._planned


def test_a_run_of_which_nobody_is_left_is_over_and_has_no_members() -> None:
    engine = run_to_end(changing([Change(0.05, "crash", i) for i in range(8)], epochs=6))
    assert engine.over
    assert engine.members() == []
    assert engine.figures()["lost"] == list(range(8))


def test_a_run_of_which_nobody_is_left_is_an_error() -> None:
    config = recipe("digits").with_changes({"engine.network": {"crash_rate": 100.0}, "engine.epochs": 6})
    with pytest.raises(UserError, match="no client is left"):
        run(config)


def test_an_algorithm_that_does_not_say_whether_it_meets_in_rounds_is_refused() -> None:
    """At once, by name, not by an AttributeError when its folder has been made."""

    class Forgetful:
        name, rule = "forgetful", SgdRule()

        def step(self, me: Any, s: Any) -> Any:
            raise NotImplementedError

    setup, _, _ = quadratic_setup(MAKERS["swift"](GRAPH, SgdRule()), GRAPH, epochs=1)
    with pytest.raises(UserError, match="the algorithm Forgetful has no in_rounds"):
        dataclasses.replace(setup, algorithm=Forgetful())


# --- steps whose numbers are not finite ------------------------------------------------------------


class Poisoned(Quadratic):
    """Some gradients of some clients are not finite."""

    bad: Any = None

    def gradients(self, xs: Sequence[Vector], batches: Sequence[Batch]) -> list[Slope]:
        found = super().gradients(xs, batches)
        return [
            Slope(np.full_like(s.g, self.bad(b)), s.loss) if self.bad(b) is not None else s
            for s, b in zip(found, batches, strict=True)
        ]


def poisoned(name: str, engine: str, bad: Any, **options: Any) -> Any:
    setup, _, workload = quadratic_setup(
        MAKERS[name](GRAPH, SgdRule(momentum=0.8)), GRAPH, method="metropolis", **options
    )
    spoilt = Poisoned(workload.A, workload.b, noise=workload.noise, seed=workload.seed)
    spoilt.bad = bad
    object.__setattr__(setup, "workload", spoilt)
    return ENGINES[engine](setup)


@every_engine
@every_algorithm
@pytest.mark.parametrize("value", [math.nan, math.inf, 1e308])
def test_one_bad_gradient_costs_one_step(name: str, engine: str, value: float, caplog: Any) -> None:
    """Models stay finite, the client goes on, and it is reported once."""
    bad = lambda b: value if (b.client, b.counter) in ((2, 7), (2, 9)) else None  # noqa: E731
    with caplog.at_level(logging.WARNING):
        made = run_to_end(poisoned(name, engine, bad, epochs=6))
    assert all(np.isfinite(x).all() for x in made.models)
    assert [record.steps for record in made.world.records] == [30] * 8
    assert made.world.records[2].start.c == 31
    assert made.discarding() == []
    if value == 1e308:
        return  # the move is large but finite, or too large: both are fine
    assert [record.discarded for record in made.world.records] == [0, 0, 2, 0, 0, 0, 0, 0]
    told = [row for row in made.take_log() if row["event"] == "warning" and row["client"] == 2]
    assert [row["text"] for row in told] == [
        "client 2: step 7 gave numbers that are not finite; the step was left out"
    ]
    assert told[0]["text"] in caplog.text


@every_engine
def test_a_client_without_finite_gradients_costs_nobody_else_a_step(engine: str) -> None:
    """In rounds, too: its models are left out, and their weight stays with the others."""
    for name in ("swift", "dsgd", "adpsgd"):
        made = run_to_end(poisoned(name, engine, lambda b: math.nan if b.client == 2 else None, epochs=6))
        assert made.discarding() == [2]
        assert made.figures()["discarded"] == 30


def test_one_bad_value_is_left_out_of_the_mean_of_all() -> None:
    """Everybody steps along the mean of the others, so that all clients keep the same model."""
    for value in (math.nan, math.inf):
        bad = lambda b, v=value: v if (b.client, b.counter) == (2, 7) else None  # noqa: E731
        made = run_to_end(poisoned("allreduce", "virtual", bad, epochs=6))
        assert [record.discarded for record in made.world.records] == [0, 0, 1, 0, 0, 0, 0, 0]
        assert made.discarding() == []
        assert all((x == made.models[0]).all() for x in made.models)
        assert np.isfinite(made.models[0]).all()


def test_a_mean_to_which_nobody_gives_finite_values_is_discarded_by_all() -> None:
    made = run_to_end(poisoned("allreduce", "virtual", lambda b: math.nan, epochs=6))
    assert made.discarding() == list(range(8))
    assert all((x == made.world.setup.workload.initial(0)).all() for x in made.models)


@every_engine
@every_algorithm
def test_a_pause_among_bad_gradients_changes_nothing(name: str, engine: str) -> None:
    bad = lambda b: math.nan if (b.client + b.counter) % 5 == 0 else None  # noqa: E731
    whole = run_to_end(poisoned(name, engine, bad, epochs=6))
    for pause in (35, 118):
        paused = poisoned(name, engine, bad, epochs=6)
        paused.start()
        paused.advance(pause)
        going_on = resumed(paused, poisoned(name, engine, bad, epochs=6))
        going_on.advance(10**9)
        assert all((x == y).all() for x, y in zip(whole.models, going_on.models, strict=True))
        assert whole.figures() == going_on.figures()
