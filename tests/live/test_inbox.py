"""An inbox is a snapshot, live and in replay: each neighbour has one model and one version in it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from live_worlds import LIMIT, check_replay, events, live_setup, running

from swiftfl.algorithm import Algorithm
from swiftfl.client import Client, State
from swiftfl.engines.ages import Pace
from swiftfl.engines.live.inbox import Gate, NewestInbox
from swiftfl.engines.live.journal import read_incarnations, split, version
from swiftfl.errors import UserError
from swiftfl.rules import SgdRule, UpdateRule
from swiftfl.transports.memory import MemoryPlan
from swiftfl.vector import Weights, mix
from swiftfl.verbs import Exchange, Fetch, Gradient, Mix, Publish, Verb, WaitFree

Step = Generator[Verb, object, State]


@dataclass(frozen=True)
class LookThenMix:
    """Looks at every model twice, waits, and mixes: all of them must be the same models."""

    rule: UpdateRule = SgdRule()
    name: str = "look-then-mix"
    in_rounds: ClassVar[bool] = False

    def step(self, me: Client, s: State) -> Generator[WaitFree, object, State]:
        yield from Publish(s.x, me.neighbours, version=s.c)
        slope = yield from Gradient(s.x, me.batch(s.c))
        inbox = yield from Fetch(me.neighbours)
        looked = dict(inbox)
        time.sleep(0.002)
        again = {k: inbox[k] for k in me.neighbours if k in inbox}
        half = yield from Mix(me.w, s.x, inbox)
        _check(me.w, s, looked, again, half)
        move, memory = self.rule.update(slope.g, s.x, me.step_size(s.c), s.memory)
        return State(half + move, s.c + 1, memory)


@dataclass(frozen=True)
class LookThenMixInRounds:
    """The same after an exchange."""

    rule: UpdateRule = SgdRule()
    name: str = "look-then-mix-in-rounds"
    in_rounds: ClassVar[bool] = True

    def step(self, me: Client, s: State) -> Step:
        slope = yield from Gradient(s.x, me.batch(s.c))
        inbox = yield from Exchange(s.x, me.neighbours, round=s.c)
        looked = dict(inbox)
        again = dict(inbox.items())
        half = yield from Mix(me.w, s.x, inbox)
        _check(me.w, s, looked, again, half)
        move, memory = self.rule.update(slope.g, s.x, me.step_size(s.c), s.memory)
        return State(half + move, s.c + 1, memory)


def _check(w: Weights, s: State, looked: dict, again: dict, half: np.ndarray) -> None:
    for k, model in looked.items():
        if model is not again[k]:
            raise AssertionError(f"two looks at client {k} in step {s.c} saw two models")
    if not np.array_equal(half, mix(w, s.x, looked)):
        raise AssertionError(f"the mix of step {s.c} is not of the models that were looked at")


@dataclass(frozen=True)
class LookOnly:
    """Averages by hand with one neighbour, and publishes the result in the same step; takes no mix."""

    rule: UpdateRule = SgdRule()
    name: str = "look-only"
    in_rounds: ClassVar[bool] = False

    def step(self, me: Client, s: State) -> Generator[WaitFree, object, State]:
        yield from Publish(s.x, me.neighbours, version=s.c)
        slope = yield from Gradient(s.x, me.batch(s.c))
        inbox = yield from Fetch(me.neighbours)
        near = me.neighbours[s.c % len(me.neighbours)]
        half = 0.5 * (s.x + inbox[near]) if near in inbox else s.x
        move, memory = self.rule.update(slope.g, s.x, me.step_size(s.c), s.memory)
        return State(half + move, s.c + 1, memory)


@dataclass(frozen=True)
class PickOne:
    """Exchanges with everybody and uses one neighbour's model only."""

    rule: UpdateRule = SgdRule()
    name: str = "pick-one"
    in_rounds: ClassVar[bool] = True

    def step(self, me: Client, s: State) -> Step:
        slope = yield from Gradient(s.x, me.batch(s.c))
        inbox = yield from Exchange(s.x, me.neighbours, round=s.c)
        near = me.neighbours[s.c % len(me.neighbours)]
        half = 0.5 * (s.x + inbox[near]) if near in inbox else s.x
        move, memory = self.rule.update(slope.g, s.x, me.step_size(s.c), s.memory)
        return State(half + move, s.c + 1, memory)


@pytest.mark.parametrize(
    ("algorithm", "method"),
    [
        (LookThenMix(rule=SgdRule(0.9)), "ccs"),
        (LookOnly(), "ccs"),
        (LookThenMixInRounds(), "metropolis"),
        (PickOne(), "metropolis"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_what_was_looked_at_is_what_is_mixed_and_replayed(
    algorithm: Algorithm[Verb], method: str, tmp_path: Path
) -> None:
    setup = live_setup(algorithm, seconds=0.001, method=method, epochs=16)
    with running(setup, tmp_path / "clients") as engine:
        assert engine.wait(LIMIT)
        assert events(engine, "lost") == []
        live = engine.models
    check_replay(setup, tmp_path / "clients", live)


def test_what_was_looked_at_is_recorded_under_its_own_step(tmp_path: Path) -> None:
    setup = live_setup(LookOnly(), seconds=0.001, epochs=4)
    with running(setup, tmp_path / "clients") as engine:
        assert engine.wait(LIMIT)
    for i in range(4):
        (record,) = read_incarnations(tmp_path / "clients", i, 4)
        assert sorted(c for c, _ in record.fetched) == list(range(1, 21))
        for (c, number), used in record.fetched.items():
            assert number == 0
            ((near, seen),) = used.items()
            assert near == setup.client(i).neighbours[c % 2]
            assert split(seen)[1] >= 1


@dataclass(frozen=True)
class MixThenLook:
    """What an algorithm must not do."""

    rule: UpdateRule = SgdRule()
    name: str = "mix-then-look"
    in_rounds: ClassVar[bool] = False

    def step(self, me: Client, s: State) -> Generator[WaitFree, object, State]:
        inbox = yield from Fetch(me.neighbours)
        half = yield from Mix(me.w, s.x, inbox)
        return State(half + 0.0 * inbox[me.neighbours[0]], s.c + 1, s.memory)


def test_looking_at_an_inbox_after_it_was_mixed_is_an_error() -> None:
    with running(live_setup(MixThenLook(), epochs=2)) as engine:
        assert engine.wait(LIMIT)
        assert [row["reason"] for row in events(engine, "lost")] == [
            "an inbox was mixed already, and its models are not kept: look at it before the Mix"
        ] * 4


class TestInbox:
    """Over a transport of one process: what is refused is not in the inbox."""

    def setup_method(self) -> None:
        self.x0 = np.zeros(3)
        plan = MemoryPlan([(1, 2), (0, 2), (0, 1)], self.x0)
        self.ends = [plan.connect(i) for i in range(3)]
        self.gate = Gate(self.x0)
        self.inbox = NewestInbox(self.ends[0], (1, 2), self.gate)

    def test_iterating_gives_only_models_that_may_be_used(self) -> None:
        self.ends[1].publish(np.array([1.0, np.nan, 1.0]), 1)
        self.ends[2].publish(np.ones(3), 1)
        assert list(self.inbox) == [2]
        assert len(self.inbox) == 1
        assert 1 not in self.inbox
        with pytest.raises(KeyError):
            self.inbox[1]
        assert self.gate.refused["not_finite"] == 1
        assert self.inbox.fetched == {2: 1}

    def test_a_model_that_was_looked_at_stays(self) -> None:
        self.ends[1].publish(np.ones(3), 1)
        seen = self.inbox[1]
        self.ends[1].publish(np.full(3, 2.0), 2)
        self.ends[2].publish(np.full(3, 8.0), 3)
        half = self.inbox.mix(Weights(0.0, {1: 0.5, 2: 0.5}), self.x0, self.gate.spare)
        np.testing.assert_array_equal(seen, np.ones(3))
        np.testing.assert_array_equal(half, np.full(3, 4.5))
        assert self.inbox.fetched == {1: 1, 2: 3}

    def test_a_model_that_is_not_finite_keeps_its_weight_with_the_client(self) -> None:
        self.ends[1].publish(np.full(3, np.inf), 1)
        self.ends[2].publish(np.full(3, 8.0), 3)
        own = np.full(3, 2.0)
        half = self.inbox.mix(Weights(0.0, {1: 0.5, 2: 0.5}), own, self.gate.spare)
        np.testing.assert_array_equal(half, np.full(3, 5.0))
        assert self.inbox.fetched == {2: 3}

    def test_mixing_twice_is_an_error(self) -> None:
        w = Weights(0.0, {1: 0.5, 2: 0.5})
        self.inbox.mix(w, self.x0, self.gate.spare)
        with pytest.raises(UserError, match="mixed already"):
            self.inbox.mix(w, self.x0, self.gate.spare)


def test_ages_of_what_was_mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A neighbour publishes every two seconds; its model is mixed three seconds after: 1.5 of its steps."""
    clock = [100.0]
    monkeypatch.setattr("swiftfl.transports.memory.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("swiftfl.engines.live.inbox.time.perf_counter", lambda: clock[0])
    x = np.zeros(3)
    plan = MemoryPlan([(1, 2), (0, 2), (0, 1)], x)
    mine, other = plan.connect(0), plan.connect(1)
    paces: defaultdict[int, Pace] = defaultdict(Pace)
    told: list[dict[int, float]] = []

    def mixed() -> NewestInbox:
        inbox = NewestInbox(mine, (1, 2), Gate(x), paces, lambda ages: told.append(dict(ages)))
        inbox.mix(Weights(0.5, {1: 0.25, 2: 0.25}), x, np.empty(3))
        return inbox

    assert mixed().ages == {}  # x0 has no age,
    for c in (1, 2, 3):
        other.publish(x, version(0, c))
        clock[0] += 2.0
        ages = mixed().ages
        assert ages == ({} if c == 1 else {1: 1.0})  # and of one model alone nobody knows the pace
    clock[0] += 1.0
    assert mixed().ages == {1: 1.5}
    assert told == [{}, {}, {1: 1.0}, {1: 1.0}, {1: 1.5}]
