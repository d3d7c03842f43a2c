"""Nodes run what never waits; all else is refused at the start, where it used to wait for ever."""

from __future__ import annotations

import threading
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, get_args, get_type_hints

import pytest
from nodes import Federation, setup_of, until

import swiftfl
from makers import MAKERS
from swiftfl.algorithm import relies_on_the_start, why_only_simulated
from swiftfl.client import Client, State
from swiftfl.errors import UserError
from swiftfl.federation.node import Node, node_setup
from swiftfl.federation.wait_free import wait_free
from swiftfl.rules import SgdRule, UpdateRule
from swiftfl.verbs import AverageWith, Gradient, Load, Verb, WaitFree

IN_PAIRS = ("adpsgd", "adpsgd:averaging=background", "swarm", "gossip_async", "a2cid2")


@pytest.mark.parametrize("name", MAKERS)
def test_an_algorithm_is_refused_unless_its_type_says_that_it_never_waits(name: str) -> None:
    """mypy holds algorithms to their types, so none that waits can be without the attribute that says so."""
    algorithm = MAKERS[name](swiftfl.ring(4), SgdRule(0.9))
    yields = get_args(get_type_hints(type(algorithm).step)["return"])[0]
    never_waits = set(get_args(yields)) <= set(get_args(WaitFree))
    if never_waits and not why_only_simulated(algorithm) and not relies_on_the_start(algorithm):
        assert wait_free(algorithm).name == algorithm.name
    else:
        with pytest.raises(UserError, match=f"{algorithm.name}.* (cannot run|cannot do)") as refusal:
            wait_free(algorithm)
        assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("algorithm", IN_PAIRS)
def test_nodes_refuse_to_average_in_pairs_before_they_connect(algorithm: str, tmp_path: Path) -> None:
    pytest.importorskip("zenoh")
    pair = Federation(tmp_path, 2, ((0, 1),))
    before = set(threading.enumerate())
    try:
        with pytest.raises(UserError, match=r"nodes never wait, so .*, whose clients average in pairs"):
            Node(pair.plan(0), setup_of(0, algorithm=algorithm), pair.said[0].append)
        assert set(threading.enumerate()) == before, "nothing was started"
    finally:
        pair.close()


@dataclass(frozen=True)
class Undeclared:
    """Averages with its neighbours in turn, and does not say so; alone it only trains."""

    rule: UpdateRule = SgdRule()
    name: str = "undeclared"
    in_rounds: ClassVar[bool] = False

    def step(self, me: Client, s: State) -> Generator[Verb, object, State]:
        yield from Gradient(s.x, me.batch(s.c))
        x = s.x
        for neighbour in me.neighbours:
            x = yield from AverageWith(neighbour)
        return State(x, s.c + 1, s.memory)


@dataclass(frozen=True)
class CellOnly(Undeclared):
    """Looks at its cell, into which nodes put no model."""

    name: str = "cell_only"

    def step(self, me: Client, s: State) -> Generator[Verb, object, State]:
        x = yield from Load()
        return State(x, s.c + 1, s.memory)


def test_a_cell_of_which_nodes_know_nothing_is_refused() -> None:
    setup = node_setup(replace(setup_of(0), algorithm=CellOnly()), 1)
    x = setup.workload.initial(setup.seed)
    step = setup.algorithm.step(setup.client(0), setup.first_state(x))
    with pytest.raises(UserError, match="nodes never wait, so cell_only, whose step yields Load, cannot run"):
        next(step)


def test_who_does_not_say_that_it_waits_is_refused_when_it_would(tmp_path: Path) -> None:
    """Its neighbour is there, lives, and would never answer: it runs SWIFT."""
    pytest.importorskip("zenoh")
    pair = Federation(tmp_path, 2, ((0, 1),))
    pair.start(1)
    setup = replace(setup_of(0), algorithm=Undeclared())
    node = Node(pair.plan(0), setup, pair.said[0].append, meet_seconds=pair.meet_seconds)
    said: list[str] = []

    def train() -> None:
        try:
            node.train()
        except UserError as error:
            said.append(str(error))

    try:
        threading.Thread(target=train, daemon=True).start()
        until(lambda: said, "the refusal")
        assert said == ["nodes never wait, so undeclared, whose step yields AverageWith, cannot run"]
    finally:
        node.close()
        pair.close()
