"""Algorithms and update rules from outside the package, live: they stop, save, resume and are replayed."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from live_worlds import (
    LIMIT,
    check_replay,
    events,
    live_setup,
    resumed,
    running,
    steps,
    stop,
    under_way,
    until,
)

from swiftfl.algorithms import Swift, dsgd
from swiftfl.client import Client, State
from swiftfl.engines.live.saves import read_all
from swiftfl.rules import SgdRule, UpdateRule
from swiftfl.vector import Memory, Vector
from swiftfl.verbs import Exchange, Fetch, Gradient, Mix, Publish, Verb, WaitFree


@dataclass(frozen=True)
class Lazy:
    """A wait-free algorithm of one's own: publishes every second step only."""

    rule: UpdateRule = SgdRule()
    name: str = "lazy"
    in_rounds: ClassVar[bool] = False

    def step(self, me: Client, s: State) -> Generator[WaitFree, object, State]:
        if s.c % 2:
            yield from Publish(s.x, me.neighbours, version=s.c)
        slope = yield from Gradient(s.x, me.batch(s.c))
        inbox = yield from Fetch(me.neighbours)
        half = yield from Mix(me.w, s.x, inbox)
        move, memory = self.rule.update(slope.g, s.x, me.step_size(s.c), s.memory)
        return State(half + move, s.c + 1, memory)


def test_a_wait_free_algorithm_of_ones_own_stops_at_once_saves_and_resumes(tmp_path: Path) -> None:
    setup, folder = live_setup(Lazy(), epochs=16, hold=15), tmp_path / "clients"
    with running(setup, folder, patience=LIMIT) as engine:
        under_way(engine, 8)
        stop(engine)
        assert events(engine, "lost") == []
        stopped_at = steps(engine)
    with resumed(setup, folder) as engine:
        assert [start.c for start in engine.resume.starts if start] == stopped_at
        assert engine.wait(LIMIT)
        assert steps(engine) == [81.0] * 4
        live = engine.models
    check_replay(setup, folder, live)


@dataclass(frozen=True)
class Short(Lazy):
    """One that sends a part of its model from its fourth step on: published, or exchanged in rounds."""

    def step(self, me: Client, s: State) -> Generator[Verb, object, State]:  # type: ignore[override]
        x = s.x[:100].copy() if s.c > 3 else s.x
        inbox: Mapping[int, Vector]
        if self.in_rounds:
            inbox = yield from Exchange(x, me.neighbours, round=s.c)
        else:
            yield from Publish(x, me.neighbours, version=s.c)
            inbox = yield from Fetch(me.neighbours)
        return State((yield from Mix(me.w, s.x, inbox)), s.c + 1, s.memory)


@dataclass(frozen=True)
class ShortInRounds(Short):
    in_rounds: ClassVar[bool] = True


@pytest.mark.parametrize("algorithm", [Short(), ShortInRounds()])
def test_a_vector_of_another_length_is_refused_in_one_line(algorithm: Short) -> None:
    with running(live_setup(algorithm, epochs=2, dimension=70_000)) as engine:
        until(lambda: bool(events(engine, "lost")), "the refusal")
        reason = events(engine, "lost")[0]["reason"]
    assert reason.startswith("lazy sends a vector of shape (100,) at step 4, but its messages have 70000 ")
    assert "\n" not in reason


@dataclass(frozen=True)
class Adam:
    """Adam without bias correction: two named arrays of memory."""

    def init(self, x: Vector) -> Memory:
        return {"mean": np.zeros_like(x), "square": np.ones_like(x)}

    def update(self, g: Vector, x: Vector, step_size: float, memory: Memory) -> tuple[Vector, Memory]:
        mean = 0.9 * memory["mean"] + 0.1 * g
        square = 0.99 * memory["square"] + 0.01 * g * g
        return -step_size * mean / (np.sqrt(square) + 1e-8), {"mean": mean, "square": square}


@pytest.mark.parametrize(("algorithm", "method"), [(Swift(rule=Adam()), "ccs"), (dsgd(Adam()), "metropolis")])
def test_a_rule_with_two_arrays_survives_save_kill_resume_and_replay(
    algorithm, method: str, tmp_path: Path
) -> None:
    setup = live_setup(algorithm, seconds=0.02, method=method, epochs=20, hold=30)
    folder = tmp_path / "clients"
    with running(setup, folder, restart_lost=True, save_steps=5) as engine:
        under_way(engine, 12)
        os.kill(engine.pid(2), signal.SIGKILL)
        until(lambda: bool(events(engine, "join")), "the return")
        stop(engine)
    saved, problems = read_all(folder, 2, setup.first_state(engine.x0))
    assert problems == []
    assert set(saved[0].state.memory) == {"mean", "square"}
    assert all(np.any(array != Adam().init(array)[name]) for name, array in saved[0].state.memory.items())
    with resumed(setup, folder) as engine:
        assert engine.wait(LIMIT)
        assert steps(engine) == [101.0] * 4
        live = engine.models
    check_replay(setup, folder, live)
