"""A checkpoint that was changed by hand is resumed or refused on one line, never with a traceback."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import swiftfl
from makers import MAKERS
from swiftfl.costs import Costs
from swiftfl.engines import SampledEngine, VirtualEngine
from swiftfl.engines.dynamics import Change, Dynamics, Rates
from swiftfl.engines.membership import Membership
from swiftfl.engines.simulation import checkpoint
from swiftfl.engines.simulation.checkpoint import Checkpoint
from swiftfl.errors import UserError
from swiftfl.rules import SgdRule
from worlds import quadratic_setup, slow

GRAPH = swiftfl.ring_of_cliques(8, clusters=2)
COSTS = Costs(compute=0.01, latency=0.003, slowdowns=slow({1: 3.0, 4: 0.6}))
RATES = Rates(crash=2.0, come_back=10.0, sleep=5.0, sleep_seconds=0.05, edge_down=2.0, edge_up=10.0)
KINDS = ["swift", "dsgd", "adpsgd", "allreduce", "swift, sampled", "swift, changing", "dsgd, changing"]


def engine_of(kind: str) -> VirtualEngine | SampledEngine:
    name, _, how = kind.partition(", ")
    method = "ccs" if name == "swift" else "metropolis"
    network = None
    if how == "changing":
        dynamics = Dynamics((Change(0.05, "crash", 2), Change(0.4, "join", 5)), RATES, measured=True)
        network = lambda: Membership(GRAPH, [1 / 8] * 8, method, dynamics, 5)  # noqa: E731
    setup, _, _ = quadratic_setup(
        MAKERS[name](GRAPH, SgdRule(momentum=0.8)),
        GRAPH,
        method=method,
        epochs=6,
        costs=COSTS,
        network=network,
    )
    return SampledEngine(setup) if how == "sampled" else VirtualEngine(setup)


@cache
def saved(kind: str) -> Checkpoint:
    engine = engine_of(kind)
    engine.start()
    engine.advance(101)
    found = checkpoint.save(engine)
    return Checkpoint(json.loads(json.dumps(found.tree)), found.arrays)


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield from places(value, (*path, key))


WRONG: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    3,
    10**30,
    1e308,
    -0.5,
    "",
    "0",
    "nan",
    "inf",
    [],
    [0],
    {},
    [[0, 0]],
]
DELETE, TWICE = "DELETE", "TWICE"


def change(tree: Any, path: tuple[Any, ...], value: Any) -> None:
    *above, last = path
    for key in above:
        tree = tree[key]
    if value == DELETE:
        del tree[last]
    elif value == TWICE and isinstance(tree, list):
        tree.append(copy.deepcopy(tree[last]))
    else:
        tree[last] = copy.deepcopy(value)


@settings(max_examples=300, deadline=None)
@given(data=st.data(), kind=st.sampled_from(KINDS))
def test_whatever_is_changed_is_refused_on_one_line_or_goes_on(data: Any, kind: str) -> None:
    tree = copy.deepcopy(saved(kind).tree)
    # A place by its section first, so that small sections are tried as often as large ones.
    section = data.draw(st.sampled_from(sorted(tree)))
    within = [path for path in places({section: tree[section]}) if len(path) < 8]
    path = data.draw(st.sampled_from(within))
    value = data.draw(st.sampled_from([*WRONG, DELETE, TWICE]))
    change(tree, path, value)
    engine = engine_of(kind)
    try:
        checkpoint.restore(engine, Checkpoint(tree, saved(kind).arrays))
    except UserError as error:
        message = str(error)
    else:
        message = ""
        engine.advance(60)
        assert all(np.isfinite(x).all() for x in engine.models)
    assert "\n" not in message


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", ["nan", "inf", "shape", "dtype", "missing"])
def test_damaged_arrays_are_refused(kind: str, damage: str) -> None:
    name = saved(kind).tree["records"][3]["model"]
    x = saved(kind).arrays[name].copy()
    if damage in ("nan", "inf"):
        x[2] = float(damage)
    arrays = {
        **saved(kind).arrays,
        name: x[:-1] if damage == "shape" else x.astype(np.float32) if damage == "dtype" else x,
    }
    if damage == "missing":
        del arrays[name]
    with pytest.raises(UserError, match=r"the checkpoint is damaged: .*(finite|shape|float32|none of)"):
        checkpoint.restore(engine_of(kind), Checkpoint(saved(kind).tree, arrays))


def test_what_is_wrong_is_named() -> None:
    tree = copy.deepcopy(saved("swift").tree)
    tree["records"][3]["clock"][1] = "late"
    with pytest.raises(UserError, match=r"records\[3\]\.clock\[1\] is not a number"):
        checkpoint.restore(engine_of("swift"), Checkpoint(tree, saved("swift").arrays))


def test_a_checkpoint_of_another_algorithm_or_engine_is_refused() -> None:
    with pytest.raises(UserError, match="algorithm was allreduce and is dsgd"):
        checkpoint.restore(engine_of("dsgd"), saved("allreduce"))
    with pytest.raises(UserError, match="algorithm was"):
        checkpoint.restore(engine_of("dsgd"), saved("swift"))
    with pytest.raises(UserError, match="sampled"):
        checkpoint.restore(engine_of("swift, sampled"), saved("swift"))
