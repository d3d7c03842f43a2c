"""Fetches, averages and steps of small vectors in one compiled call: the bits of NumPy."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import swiftfl
from swiftfl import small
from swiftfl.algorithms import Swift
from swiftfl.costs import Costs
from swiftfl.engines.ages import FetchedModels
from swiftfl.engines.simulation import batched_mix
from swiftfl.engines.simulation.event_queue import TupleEvents
from swiftfl.engines.simulation.mailboxes import Links, Mailboxes, Version
from swiftfl.engines.simulation.virtual import VirtualEngine
from swiftfl.rules import SgdRule, applied
from swiftfl.sample import Slope
from swiftfl.vector import Statistics, Vector, Weights, mix
from swiftfl.verbs import Mix
from worlds import quadratic_setup

RULES = {
    "plain": SgdRule(),
    "momentum": SgdRule(0.9),
    "decay": SgdRule(0.0, 0.01),
    "both": SgdRule(0.9, 0.01),
    "nesterov": SgdRule(0.9, 0.01, nesterov=True),
}


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Call it to go on with NumPy."""

    def forget() -> None:
        monkeypatch.setattr(small.calls, "Events", None)
        monkeypatch.setattr(small.calls, "fetch", small._not_here)
        monkeypatch.setattr(small.calls, "forget", small._not_here)
        monkeypatch.setattr(small.calls, "mix", small._not_here)
        monkeypatch.setattr(small.calls, "sgd", small._not_here)

    return forget


@pytest.fixture
def compiled() -> None:
    small.load(compile=True)
    if not small.loaded():
        pytest.skip("there is no C compiler here, or Python's headers are missing")


def vectors(count: int, size: int, dtype: type = np.float32) -> list[Vector]:
    draw = np.random.default_rng(size)
    return [(draw.standard_normal(size) * 10.0**k).astype(dtype) for k in range(count)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1, 7, 650, 1025, 5000])
@pytest.mark.parametrize("neighbours", [0, 1, 2, 9])
def test_an_average_has_numpys_bits(
    compiled: None, without: Callable[[], None], dtype: type, size: int, neighbours: int
) -> None:
    x, *others = vectors(neighbours + 1, size, dtype)
    w = Weights(0.3, {3 * k + 1: 0.1 + k / 7 for k in reversed(range(neighbours))})
    inbox = {3 * k + 1: other for k, other in enumerate(others)}
    assert small.calls.mix(w.own, w.of, x, inbox) is not None
    quick = mix(w, x, inbox)
    fewer = mix(w, x, dict(list(inbox.items())[1:]))
    without()
    assert quick.dtype == x.dtype
    assert bytes(quick) == bytes(mix(w, x, inbox))
    assert bytes(fewer) == bytes(mix(w, x, dict(list(inbox.items())[1:])))


class Doubled(dict[int, Any]):
    def __getitem__(self, k: int) -> Any:
        return 2 * super().__getitem__(k)


REFUSED: dict[str, Callable[[Vector], tuple[object, object, object, object]]] = {
    "a coefficient of NumPy's": lambda x: (np.float64(0.5), {1: 0.5}, x, {1: x}),
    "a neighbour's coefficient of NumPy's": lambda x: (0.5, {1: np.float64(0.5)}, x, {1: x}),
    "another precision": lambda x: (0.5, {1: 0.5}, x, {1: x.astype(np.float64)}),
    "another size": lambda x: (0.5, {1: 0.5}, x, {1: x[1:]}),
    "every second number": lambda x: (0.5, {1: 0.5}, x[::2], {1: x[::2]}),
    "whole numbers": lambda x: (0.5, {1: 0.5}, x.astype(np.int32), {1: x.astype(np.int32)}),
    "a matrix": lambda x: (0.5, {1: 0.5}, x.reshape(2, -1), {1: x.reshape(2, -1)}),
    "no array": lambda x: (0.5, {1: 0.5}, x, {1: x.tolist()}),
    "an inbox of its own kind": lambda x: (0.5, {1: 0.5}, x, Doubled({1: x})),
    "somebody missing": lambda x: (0.5, {1: 0.25, 2: 0.25}, x, {1: x}),
    "too many": lambda x: (0.5, dict.fromkeys(range(300), 0.1), x, dict.fromkeys(range(300), x)),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_left_to_numpy(compiled: None, what: str) -> None:
    assert small.calls.mix(*REFUSED[what](vectors(1, 10)[0])) is None


@pytest.mark.parametrize("size", [10, 70_000])
def test_the_weight_of_who_is_missing_stays_with_self(compiled: None, size: int) -> None:
    """Also where somebody else is in the inbox, whose model is not averaged."""
    x, other, stranger = np.ones(size, np.float32), np.full(size, 3.0, np.float32), np.zeros(size, np.float32)
    average = mix(Weights(0.5, {1: 0.25, 2: 0.25}), x, {1: other, 7: stranger})
    assert (average == 0.75 + 0.75).all()
    (together,) = batched_mix._product(
        [Mix(Weights(0.5, {1: 0.25, 2: 0.25}), x, FetchedModels({1: other, 7: stranger}))]
    )
    assert (together == average).all()


TIMES = st.sampled_from([-math.inf, 0.0, 1.0, 1.5, 2.0])
"""When versions were sent, of which the newest is the last."""


@settings(max_examples=200, deadline=None)
@given(
    sent=st.lists(st.lists(TIMES, min_size=1, max_size=3), min_size=1, max_size=6),
    senders=st.lists(st.integers(0, 5), max_size=8),
    step=st.sampled_from([0.0, 0.7]),
    now=st.sampled_from([0.5, 1.7, 5.0]),
)
def test_a_fetch_is_pythons(sent: list[list[float]], senders: list[int], step: float, now: float) -> None:
    small.load(compile=True)
    if not small.loaded():
        pytest.skip("there is no C compiler here, or Python's headers are missing")
    costs = Costs(latency=0.3)
    boxes = Mailboxes(len(sent), np.zeros(3), costs, Links(), 24)
    boxes._steps = array("d", [step]) * len(sent)
    boxes.versions = [
        [Version(t, c, np.full(3, c), t) for c, t in enumerate(sorted(times))] for times in sent
    ]
    boxes._newest_versions = [versions[-1] for versions in boxes.versions]
    asked = tuple(k for k in senders if k < len(sent))
    quick = boxes.fetch(0, asked, now, 9.1)
    plain = boxes.fetch(0, list(asked), now, 9.1)  # only tuples are taken
    assert quick.ages == plain.ages
    assert list(quick) == list(plain)
    assert all(quick[k] is plain[k] for k in plain)


FETCHES: dict[str, Callable[[], tuple[object, ...]]] = {
    "senders in a list": lambda: ({}, {}, [0], [V], [[V]], STEPS, 1.0, 1.0),
    "nobody of that number": lambda: ({}, {}, (1,), [V], [[V]], STEPS, 1.0, 1.0),
    "a negative number": lambda: ({}, {}, (-1,), [V], [[V]], STEPS, 1.0, 1.0),
    "a name": lambda: ({}, {}, ("a",), [V], [[V]], STEPS, 1.0, 1.0),
    "a number without end": lambda: ({}, {}, (10**30,), [V], [[V]], STEPS, 1.0, 1.0),
    "a version of three": lambda: ({}, {}, (0,), [V[:3]], [[V]], STEPS, 1.0, 1.0),
    "a version that is none": lambda: ({}, {}, (0,), [None], [[V]], STEPS, 1.0, 1.0),
    "whole seconds": lambda: ({}, {}, (0,), [(0, 1, V[2], 0.0)], [[V]], STEPS, 1.0, 1.0),
    "older versions that are none": lambda: ({}, {}, (0,), [V], [[None]], STEPS, -1.0, 1.0),
    "older versions in a tuple": lambda: ({}, {}, (0,), [V], [(V,)], STEPS, -1.0, 1.0),
    "too few steps": lambda: ({}, {}, (0,), [V], [[V]], array("d"), 1.0, 1.0),
    "fewer lists than clients": lambda: ({}, {}, (0,), [V], [], STEPS, 1.0, 1.0),
    "very many senders": lambda: ({}, {}, (0,) * 300, [V], [[V]], STEPS, 1.0, 1.0),
    "too few arguments": lambda: ({}, {}),
}
V = (0.0, 1, np.zeros(3), 0.0)
STEPS = array("d", [1.0])


@pytest.mark.parametrize("what", FETCHES)
def test_which_fetches_are_left_to_python(compiled: None, what: str) -> None:
    asked = FETCHES[what]()
    assert small.calls.fetch(*asked) is None
    assert asked[:2] == ({}, {})  # and nothing was put there


def mailboxes_of(sent: list[list[float]]) -> tuple[Mailboxes, list[tuple[int, ...]]]:
    """Versions of these times, and to whom each client sends: one of them to others than its neighbours."""
    boxes = Mailboxes(len(sent), np.zeros(3), Costs(latency=0.3), Links(), 24)
    boxes.versions = [
        [Version(t, c, np.full(3, c), t) for c, t in enumerate(sorted(times))] for times in sent
    ]
    usual = [(k,) for k in range(len(sent))]
    boxes._to = [(0, 1), *usual[1:]]
    return boxes, usual


@settings(max_examples=200, deadline=None)
@given(
    sent=st.lists(st.lists(TIMES, max_size=4), min_size=1, max_size=40),
    asked=st.lists(st.integers(0, 39), max_size=70),
    time=st.sampled_from([-5.0, 0.3, 1.4, 9.0]),
)
def test_what_is_given_up_is_pythons(sent: list[list[float]], asked: list[int], time: float) -> None:
    small.load(compile=True)
    if not small.loaded():
        pytest.skip("there is no C compiler here, or Python's headers are missing")
    places = np.array([k for k in asked if k < len(sent)], np.int64)
    times = time + np.arange(places.size) / 10
    quick, usual = mailboxes_of(sent)
    quick.forget_before(places, times, usual)
    plain, usual = mailboxes_of(sent)
    plain.forget_before(places, times, tuple(usual))  # only lists are taken
    assert [[v.x.tolist() for v in kept] for kept in quick.versions] == [
        [v.x.tolist() for v in kept] for kept in plain.versions
    ]
    assert [[(v.sent, v.number, v.since) for v in kept] for kept in quick.versions] == [
        [(v.sent, v.number, v.since) for v in kept] for kept in plain.versions
    ]
    assert all(type(v) is Version for kept in quick.versions for v in kept)


ONE, NOW = np.array([0]), np.array([1.0])
GIVEN_UP: dict[str, Callable[[], tuple[object, ...]]] = {
    "nobody of that number": lambda: (np.array([1]), NOW, [[V]], [()], [()], None),
    "a negative number": lambda: (np.array([-1]), NOW, [[V]], [()], [()], None),
    "more clients than times": lambda: (np.array([0, 0]), NOW, [[V]], [()], [()], None),
    "versions in a tuple": lambda: (ONE, NOW, [(V,)], [()], [()], None),
    "a version that is none": lambda: (ONE, NOW, [[V, None]], [()], [()], None),
    "fewer receivers than clients": lambda: (ONE, NOW, [[V]], [], [()], None),
    "too few arguments": lambda: (ONE, NOW),
}


@pytest.mark.parametrize("what", GIVEN_UP)
def test_what_is_left_to_python_to_give_up(compiled: None, what: str) -> None:
    assert small.calls.forget(*GIVEN_UP[what]()) is None


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.none(), st.sampled_from([0.0, 0.5, 1.0, 1e9, math.inf]))))
def test_events_come_in_pythons_order(times: list[float | None]) -> None:
    """None takes one out."""
    small.load(compile=True)
    if not small.loaded():
        pytest.skip("there is no C compiler here, or Python's headers are missing")
    quick, plain = small.calls.Events(), TupleEvents()
    for number, time in enumerate(times):
        if time is not None:
            quick.push(time, number, number % 3 - 1)
            plain.push(time, number, number % 3 - 1)
        elif plain:
            assert quick.first() == plain.first()
            assert quick.pop() == plain.pop()
        assert len(quick) == len(plain)
        assert sorted(quick.entries()) == sorted(plain.entries())
    while plain:
        assert quick.pop() == plain.pop()
    for look in (quick.pop, quick.first):
        with pytest.raises(IndexError):
            look()
    with pytest.raises(TypeError):
        quick.push(1.0)
    with pytest.raises(TypeError):
        quick.push("soon", 1, 2)
    assert not quick


def test_a_run_goes_on_when_its_events_are_compiled(compiled: None, monkeypatch: pytest.MonkeyPatch) -> None:
    events, engines = small.calls.Events, []
    for there in (None, events):
        monkeypatch.setattr(small.calls, "Events", None)
        setup, _, _ = quadratic_setup(Swift(), swiftfl.ring(6), epochs=4, costs=Costs(latency=0.01))
        engine = VirtualEngine(setup)
        engine.start()
        engine.advance(7)
        monkeypatch.setattr(small.calls, "Events", there)
        engine.advance(10**6)
        engines.append(engine)
    plain, quick = engines
    assert type(plain.world.events.heap) is TupleEvents
    assert type(quick.world.events.heap) is events
    assert [bytes(x) for x in plain.models] == [bytes(x) for x in quick.models]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("buffers", [0, 3])
def test_a_step_has_numpys_bits(
    compiled: None, without: Callable[[], None], rule: str, dtype: type, buffers: int
) -> None:
    half, g, x, m = vectors(4, 650, dtype)
    memory = {"momentum": m} if RULES[rule].momentum else {}
    slope = Slope(g, 0.0, Statistics(half[:buffers] + 1, 0.1) if buffers else None)
    before = [bytes(array) for array in (half, g, x, m)]
    quick = applied(RULES[rule], half, slope, x, 0.1, memory)
    assert quick.finite == (not buffers)
    without()
    plain = applied(RULES[rule], half, slope, x, 0.1, memory)
    assert not plain.finite
    assert bytes(quick.x) == bytes(plain.x)
    assert {k: bytes(v) for k, v in quick.memory.items()} == {k: bytes(v) for k, v in plain.memory.items()}
    assert before == [bytes(array) for array in (half, g, x, m)]


@pytest.mark.parametrize("number", [np.nan, np.inf, 3e38])
def test_numbers_that_are_not_finite_are_seen(compiled: None, number: float) -> None:
    half, g, x, m = vectors(4, 650)
    g[-1] = m[-1] = number
    found = applied(SgdRule(0.9), half, Slope(g, 0.0), x, 1e-30, {"momentum": m})
    assert not found.finite  # 0.9 times 3e38, and 3e38 more, is too large for a momentum


def test_a_run_is_the_same_with_it_and_without(compiled: None, without: Callable[[], None]) -> None:
    def models() -> list[bytes]:
        setup, *_ = quadratic_setup(Swift(rule=SgdRule(0.9)), swiftfl.ring(9), iterations=300)
        engine = VirtualEngine(setup)
        engine.start()
        engine.advance(300)
        return [bytes(x) for x in engine.models]

    quick = models()
    without()
    assert models() == quick


def test_it_is_compiled_after_many_steps_only(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def module(compile: bool) -> ModuleType | None:
        asked.append(compile)
        return None

    monkeypatch.setattr(small, "_module", module)
    monkeypatch.setattr(small, "_settled", False)
    monkeypatch.setattr(small, "SMALL_STEPS", 100)
    monkeypatch.delenv("SWIFTFL_KERNELS", raising=False)
    setup, *_ = quadratic_setup(Swift(), swiftfl.ring(5), iterations=400)
    engine = VirtualEngine(setup)
    engine.start()
    for _ in range(4):
        engine.advance(60)
    assert asked == [False, True]


@pytest.mark.parametrize("reason", ["not wanted", "no compiler", "other bits"])
def test_without_it_numpy_does_the_work(
    compiled: None, reason: str, without: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    without()
    monkeypatch.setattr(small, "_settled", False)
    if reason == "not wanted":
        monkeypatch.setenv("SWIFTFL_KERNELS", "numpy")
    elif reason == "no compiler":
        monkeypatch.setattr("swiftfl.compiling.shutil.which", lambda name: None)
    else:
        monkeypatch.setattr(small, "_agrees", lambda found: False)
    small.load(compile=True)
    assert not small.loaded()
    x, other = vectors(2, 10)
    assert (mix(Weights(0.5, {1: 0.5}), x, {1: other}) == x * 0.5 + other * 0.5).all()
