"""Algorithms of one's own whose step a simulated run cannot go on with: one line that names them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import pytest

from swiftfl.algorithms import Swift
from swiftfl.client import Client, State
from swiftfl.engines import SampledEngine, VirtualEngine
from swiftfl.errors import UserError
from swiftfl.rules import SgdRule
from swiftfl.verbs import Exchange, Gradient, Publish, Scatter, Verb
from worlds import quadratic_setup, run_to_end

Step = Callable[[Client, State], Generator[Any, Any, Any]]
every_engine = pytest.mark.parametrize("engine", [VirtualEngine, SampledEngine])


class Own:
    """An algorithm with any step."""

    name = "own"
    in_rounds = True
    rule = SgdRule()

    def __init__(self, step: Step) -> None:
        self.step = step


def ends_with(made: Callable[[State], object], from_step: int = 1) -> Step:
    """Plain SGD, whose steps return something else from some step on."""

    def step(client: Client, s: State) -> Generator[Verb, Any, Any]:
        slope = yield from Gradient(s.x, client.batch(s.c))
        return State(s.x - 0.1 * slope.g, s.c + 1) if s.c < from_step else made(s)

    return step


def sends(verb: Callable[[Client, State], Any]) -> Step:
    def step(client: Client, s: State) -> Generator[Verb, Any, State]:
        slope = yield from Gradient(s.x, client.batch(s.c))
        yield from verb(client, s)
        return State(s.x - 0.1 * slope.g, s.c + 1)

    return step


def adds_in_place(client: Client, s: State) -> Generator[Verb, Any, State]:
    slope = yield from Gradient(s.x, client.batch(s.c))
    x = s.x
    x -= 0.1 * slope.g
    return State(x, s.c + 1)


def puts_in_place(client: Client, s: State) -> Generator[Verb, Any, State]:
    s.x[0] = 0.0
    yield from Gradient(s.x, client.batch(s.c))
    return State(s.x, s.c + 1)


def longer(s: State) -> Any:
    return np.append(s.x, 1.0)


def column(s: State) -> Any:
    return s.x.reshape(-1, 1)


REFUSED: dict[str, tuple[Step, str]] = {
    "no return": (ends_with(lambda s: None), "own returned nothing: it must end with `return State"),
    "no return, later": (ends_with(lambda s: None, from_step=3), "own returned nothing"),
    "a vector": (ends_with(lambda s: s.x), "own returned something of type ndarray"),
    "a tuple": (ends_with(lambda s: (s.x, s.c)), "own returned something of type tuple"),
    "a state of nothing": (
        ends_with(lambda s: State(None, s.c + 1)),  # type: ignore[arg-type]
        "own returned a State with something of type NoneType",
    ),
    "a longer model": (ends_with(lambda s: State(longer(s))), "own returned a State with a vector of shape"),
    "one number": (ends_with(lambda s: State(s.x[:1])), r"a vector of shape \(1,\): its model must be like"),
    "a column": (ends_with(lambda s: State(column(s))), "own returned a State with a vector of shape"),
    "a longer message": (
        sends(lambda client, s: Publish(longer(s), client.neighbours, s.c)),
        "own yields Publish with a vector of shape",
    ),
    "an empty message": (
        sends(lambda client, s: Publish(None, client.neighbours, s.c)),  # type: ignore[arg-type]
        "own yields Publish with something of type NoneType",
    ),
    "a longer exchange": (
        sends(lambda client, s: Exchange(longer(s), client.neighbours, s.c)),
        "own yields Exchange with a vector of shape",
    ),
    "longer fragments": (
        sends(lambda client, s: Scatter(longer(s), 0, 2, client.neighbours, s.c)),
        "own yields Scatter with a vector of shape",
    ),
    "a sum in place": (adds_in_place, "own writes into a vector that others use"),
    "a number in place": (puts_in_place, "own writes into a vector that others use"),
}


@every_engine
@pytest.mark.parametrize("name", REFUSED)
def test_a_step_that_cannot_go_on_is_one_sentence(engine: Any, name: str) -> None:
    step, said = REFUSED[name]
    setup = quadratic_setup(Own(step), epochs=4)[0]
    with pytest.raises(UserError, match=said) as error:
        run_to_end(engine(setup))
    assert "\n" not in str(error.value)


@every_engine
def test_other_errors_of_a_step_are_its_own(engine: Any) -> None:
    def fails(client: Client, s: State) -> Generator[Verb, Any, State]:
        yield from Gradient(s.x, client.batch(s.c))
        raise ValueError("no such thing")

    setup = quadratic_setup(Own(fails))[0]
    with pytest.raises(ValueError, match=r"^no such thing$") as error:
        run_to_end(engine(setup))
    assert not isinstance(error.value, UserError)


@every_engine
def test_the_first_model_of_all_is_read_only_and_the_workloads_own_is_not(engine: Any) -> None:
    setup, _, problem = quadratic_setup(Swift())
    start = problem.initial(setup.seed)
    object.__setattr__(problem, "initial", lambda seed: start)
    made = engine(setup)
    assert all(np.shares_memory(x, start) and not x.flags.writeable for x in made.models)
    assert start.flags.writeable
    assert all(x.flags.writeable for x in run_to_end(made).models)
