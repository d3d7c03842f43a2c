"""What every engine promises to algorithms and update rules, whoever wrote them.

A subject is an engine under test: how it runs a setup to its end, and how it does with a pause after which
a new engine goes on from what was saved. To test another engine, add it to `SUBJECTS`. Real processes are
never twice the same, unless they are replayed: they have a test of their own. The algorithms
check the contract themselves, in the middle of their steps, so that it is checked wherever they run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import swiftfl
from swiftfl.algorithm import Algorithm
from swiftfl.algorithms import Swift, SwiftLookAhead, dsgd
from swiftfl.client import Client, State
from swiftfl.costs import Costs
from swiftfl.engines import SampledEngine, Setup, VirtualEngine
from swiftfl.engines.live.local.engine import LocalEngine
from swiftfl.engines.live.replay import replay
from swiftfl.engines.live.resume import find_resume_point
from swiftfl.errors import UserError
from swiftfl.rules import SgdRule, UpdateRule
from swiftfl.vector import Memory, Vector, advance, mix
from swiftfl.verbs import AllReduce, Exchange, Fetch, Gradient, Inbox, Mix, Publish, Verb, WaitFree
from worlds import quadratic_setup, resumed, run_to_end, slow

EPOCHS, STEPS = 6, 5
PAUSE = 77  # client steps, of 8 x 30
LIMIT = 60.0  # seconds, for runs with real processes

# --- algorithms and a rule that swiftfl does not know --------------------------------------------


def look(inbox: Inbox, neighbours: tuple[int, ...]) -> dict[int, Vector]:
    return {k: inbox[k].copy() for k in neighbours}


def same(a: dict[int, Vector], b: dict[int, Vector]) -> bool:
    return a.keys() == b.keys() and all((a[k] == b[k]).all() for k in a)


@dataclass(frozen=True)
class Looking:
    """SWIFT that looks at its inbox before and after its gradient, and then mixes it: a wait-free step."""

    rule: UpdateRule = SgdRule(momentum=0.5)
    name: str = "looking"
    in_rounds: ClassVar[bool] = False

    def step(self, me: Client, s: State) -> Generator[WaitFree, object, State]:
        yield from Publish(s.x, me.neighbours, version=s.c)
        inbox = yield from Fetch(me.neighbours)
        first = look(inbox, me.neighbours)
        slope = yield from Gradient(s.x, me.batch(s.c))  # meanwhile the neighbours publish newer models
        assert same(first, look(inbox, me.neighbours)), "looking twice saw two models"
        half = yield from Mix(me.w, s.x, inbox)
        assert (half == mix(me.w, s.x, first)).all(), "mixed another model than the one that was seen"
        move, memory = self.rule.update(slope.g, s.x, me.step_size(s.c), s.memory)
        return State(advance(half, move, slope.statistics), s.c + 1, memory)


@dataclass(frozen=True)
class LookingInRounds:
    """D-SGD that looks twice at what it exchanged, and then mixes it."""

    rule: UpdateRule = SgdRule(momentum=0.5)
    name: str = "looking_in_rounds"
    in_rounds: ClassVar[bool] = True

    def step(self, me: Client, s: State) -> Generator[Verb, object, State]:
        slope = yield from Gradient(s.x, me.batch(s.c))
        move, memory = self.rule.update(slope.g, s.x, me.step_size(s.c), s.memory)
        x = advance(s.x, move, slope.statistics)
        inbox = yield from Exchange(x, me.neighbours, s.c)
        first = look(inbox, me.neighbours)
        assert same(first, look(inbox, me.neighbours)), "looking twice saw two models"
        half = yield from Mix(me.w, x, inbox)
        assert (half == mix(me.w, x, first)).all(), "mixed another model than the one that was seen"
        return State(half, s.c + 1, memory)


@dataclass(frozen=True)
class Median:
    """A wait-free algorithm that never mixes: each coordinate's median of its own model and its inbox."""

    rule: UpdateRule = SgdRule()
    name: str = "median"
    in_rounds: ClassVar[bool] = False

    def step(self, me: Client, s: State) -> Generator[WaitFree, object, State]:
        yield from Publish(s.x, me.neighbours, version=s.c)
        slope = yield from Gradient(s.x, me.batch(s.c))
        inbox = yield from Fetch(me.neighbours)
        half = np.median(np.stack([s.x, *(inbox[k] for k in me.neighbours)]), axis=0).astype(s.x.dtype)
        move, memory = self.rule.update(slope.g, s.x, me.step_size(s.c), s.memory)
        return State(advance(half, move, slope.statistics), s.c + 1, memory)


@dataclass(frozen=True)
class AdamLike:
    """Two named arrays of memory, neither of which is called momentum."""

    rates: tuple[float, float] = field(default=(0.9, 0.99))

    def init(self, x: Vector) -> Memory:
        return {"mean": np.zeros_like(x), "square": np.ones_like(x)}

    def update(self, g: Vector, x: Vector, step_size: float, memory: Memory) -> tuple[Vector, Memory]:
        slow, slower = self.rates
        mean = slow * memory["mean"] + (1 - slow) * g
        square = slower * memory["square"] + (1 - slower) * g * g
        return -step_size * mean / (np.sqrt(square) + 1e-8), {"mean": mean, "square": square}


ALGORITHMS: dict[str, Algorithm[Verb]] = {
    "looking": Looking(),
    "looking in rounds": LookingInRounds(),
    "median": Median(),
    "swift with Adam": Swift(rule=AdamLike()),
    "swift, corrected": Swift(corrected=True),
    "swift, look-ahead, corrected": SwiftLookAhead(rule=SgdRule(momentum=0.5), corrected=True),
    "dsgd with Adam": dsgd(AdamLike()),
}

# --- engines -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Subject:
    """An engine under test: both give the models of all clients at the end of the run."""

    run: Callable[[Setup], list[Vector]]
    run_with_a_pause: Callable[[Setup], list[Vector]]


def simulated(engine: Any) -> Subject:
    def run_with_a_pause(setup: Setup) -> list[Vector]:
        paused = engine(setup)
        paused.start()
        paused.advance(PAUSE)
        going_on = resumed(paused, engine(setup))
        going_on.advance(10**9)
        assert going_on.over
        return list(going_on.models)

    return Subject(lambda setup: list(run_to_end(engine(setup)).models), run_with_a_pause)


SUBJECTS: dict[str, Subject] = {"virtual": simulated(VirtualEngine), "sampled": simulated(SampledEngine)}


def setup_of(name: str) -> Setup:
    graph = swiftfl.ring_of_cliques(8, clusters=2)
    costs = Costs(compute=0.01, latency=0.003, slowdowns=slow({1: 3.0, 4: 0.6}))
    return quadratic_setup(
        ALGORITHMS[name], graph, method="metropolis", epochs=EPOCHS, steps_per_epoch=STEPS, costs=costs
    )[0]


# --- the contracts -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_it_runs_and_learns(subject: str, name: str) -> None:
    """The looking algorithms check in every step that an inbox is a snapshot."""
    setup = setup_of(name)
    centre = np.mean(SUBJECTS[subject].run(setup), axis=0)
    workload: Any = setup.workload
    start = np.linalg.norm(workload.initial(setup.seed) - workload.minimiser)
    assert np.linalg.norm(centre - workload.minimiser) < 0.8 * start


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_pause_changes_nothing(subject: str, name: str) -> None:
    """With all arrays of the rule's memory, and wherever a client was in its step."""
    whole = SUBJECTS[subject].run(setup_of(name))
    paused = SUBJECTS[subject].run_with_a_pause(setup_of(name))
    assert all((x == y).all() for x, y in zip(whole, paused, strict=True))


def live_run(setup: Setup, folder: Path, pause_at: int | None) -> list[Vector]:
    """A run with real processes, stopped when everybody has reached a step, and resumed."""
    resume = None if pause_at is not None or not folder.exists() else find_resume_point(folder, setup)
    engine = LocalEngine(setup, folder, resume=resume)
    try:
        engine.start()
        end = time.monotonic() + LIMIT
        while not engine.wait(0.01):
            assert time.monotonic() < end
            if pause_at is not None and min(engine.status.column("c")) >= pause_at:
                engine.stop()
        assert [row for row in engine.take_log() if row["event"] == "lost"] == []
        assert engine.stopped == (pause_at is not None)
        return engine.models
    finally:
        engine.close()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_real_processes_keep_the_contracts_and_so_does_their_replay(name: str, tmp_path: Path) -> None:
    """With a pause, after which new processes go on from what was saved; a replay gives the same bits."""
    setup = replace(setup_of(name), epochs=10 * EPOCHS)
    live_run(setup, tmp_path / "clients", pause_at=8)
    live = live_run(setup, tmp_path / "clients", pause_at=None)
    workload: Any = setup.workload
    start = np.linalg.norm(workload.initial(setup.seed) - workload.minimiser)
    assert np.linalg.norm(np.mean(live, axis=0) - workload.minimiser) < 0.8 * start
    repeated = replay(setup, tmp_path / "clients")
    assert all((x == y).all() for x, y in zip(live, repeated, strict=True))


# --- an algorithm that does not say that it meets in rounds --------------------------------------


@dataclass(frozen=True)
class Unannounced:
    """Meets in rounds from its third step on, but says that it does not."""

    meet: Callable[[Vector, Client, State], Exchange | AllReduce]
    rule: UpdateRule = SgdRule()
    name: str = "unannounced"
    in_rounds: ClassVar[bool] = False

    def step(self, me: Client, s: State) -> Generator[Verb, object, State]:
        slope = yield from Gradient(s.x, me.batch(s.c))
        if s.c >= 3:
            yield from self.meet(slope.g, me, s)
        return State(s.x, s.c + 1, s.memory)


UNANNOUNCED = {
    "Exchange": Unannounced(lambda x, me, s: Exchange(x, me.neighbours, s.c)),
    "AllReduce": Unannounced(lambda x, me, s: AllReduce(x, me.influence, s.c)),
}
TOLD = "the algorithm unannounced says in_rounds = False, but its step yields {}, with which clients meet"


@pytest.mark.parametrize("verb", UNANNOUNCED)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_rounds_that_are_not_announced_are_refused(subject: str, verb: str) -> None:
    setup, _, _ = quadratic_setup(UNANNOUNCED[verb], epochs=4)
    with pytest.raises(UserError, match=TOLD.format(verb)):
        SUBJECTS[subject].run(setup)


@pytest.mark.parametrize("verb", UNANNOUNCED)
def test_rounds_that_are_not_announced_are_refused_by_real_processes(verb: str) -> None:
    setup, _, _ = quadratic_setup(UNANNOUNCED[verb], epochs=4)
    engine = LocalEngine(setup)
    try:
        engine.start()
        assert engine.wait(LIMIT)
        reasons = [row["reason"] for row in engine.take_log() if row["event"] == "lost"]
    finally:
        engine.close()
    assert len(reasons) == setup.n
    assert all(TOLD.format(verb) in reason for reason in reasons)
