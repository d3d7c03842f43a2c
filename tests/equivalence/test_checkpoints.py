"""Same seed, same run; and a run that is paused anywhere and resumed is the run without the pause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import swiftfl
from swiftfl.algorithms import Swift, dsgd, ldsgd
from swiftfl.costs import Costs
from swiftfl.engines import SampledEngine, VirtualEngine
from swiftfl.engines.simulation import checkpoint
from swiftfl.errors import UserError
from swiftfl.experiment.build import build
from swiftfl.experiment.recipes import digits
from swiftfl.record import RunFolder
from swiftfl.rules import RULES, SgdRule
from swiftfl.schedule import every
from worlds import clocks, quadratic_setup, resumed, run_to_end, slow

ALGORITHMS: dict[str, Any] = {
    "swift": Swift(every(1), SgdRule(momentum=0.9)),
    "dsgd": dsgd(SgdRule(momentum=0.9)),
    "ldsgd": ldsgd(2, 2),
}
ENGINES: dict[str, Any] = {"virtual": VirtualEngine, "sampled": SampledEngine}
COSTS = Costs(compute=0.01, latency=0.004, shared_bandwidth=1e6, slowdowns=slow({3: 4.0, 1: 0.7}))


def world(engine: str, algorithm: str, barrier: str = "neighbours") -> Any:
    setup, _, _ = quadratic_setup(ALGORITHMS[algorithm], epochs=8, costs=COSTS, barrier=barrier)
    return ENGINES[engine](setup)


def assert_same(a: Any, b: Any) -> None:
    assert a.iteration == b.iteration
    assert clocks(a) == clocks(b)
    assert a.seconds() == b.seconds()
    assert all((x == y).all() for x, y in zip(a.models, b.models, strict=True))
    assert a.take_train_loss() == b.take_train_loss()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("engine", ENGINES)
def test_same_seed_same_run(engine: str, algorithm: str) -> None:
    assert_same(run_to_end(world(engine, algorithm)), run_to_end(world(engine, algorithm)))


@settings(max_examples=60, deadline=None)
@given(
    engine=st.sampled_from(sorted(ENGINES)),
    algorithm=st.sampled_from(sorted(ALGORITHMS)),
    barrier=st.sampled_from(["neighbours", "global"]),
    pauses=st.lists(st.integers(0, 239), min_size=1, max_size=3),
)
def test_pausing_changes_nothing(engine: str, algorithm: str, barrier: str, pauses: list[int]) -> None:
    current = world(engine, algorithm, barrier)
    current.start()
    for pause in sorted(pauses):
        current.advance(pause - current.iteration)
        current = resumed(current, world(engine, algorithm, barrier))
    current.advance(10**9)
    assert_same(run_to_end(world(engine, algorithm, barrier)), current)


def test_a_checkpoint_survives_the_disk(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    paused = world("virtual", "swift")
    paused.start()
    paused.advance(77)
    saved = checkpoint.save(paused)
    folder.checkpoints.write(saved.tree, saved.arrays, {})
    folder.checkpoints.write(saved.tree, saved.arrays, {})  # the second replaces the first
    found = folder.checkpoints.read()
    assert found is not None
    going_on = world("virtual", "swift")
    checkpoint.restore(going_on, checkpoint.Checkpoint(found.tree, found.arrays))
    going_on.advance(10**9)
    assert_same(run_to_end(world("virtual", "swift")), going_on)


def test_without_the_models_on_their_way_a_resumed_run_differs() -> None:
    """The test above can fail: drop what is in flight, and the run is another one."""
    paused = world("virtual", "swift")
    paused.start()
    paused.advance(77)
    saved = checkpoint.save(paused)
    for versions in saved.tree["mailboxes"]:
        del versions[1:]
    poorer = world("virtual", "swift")
    checkpoint.restore(poorer, saved)
    poorer.advance(10**9)
    whole = run_to_end(world("virtual", "swift"))
    assert any((x != y).any() for x, y in zip(whole.models, poorer.models, strict=True))


def test_a_checkpoint_of_another_run_is_refused() -> None:
    paused = world("virtual", "swift")
    paused.start()
    saved = checkpoint.save(paused)
    bigger, _, _ = quadratic_setup(ALGORITHMS["swift"], swiftfl.ring(7))
    with pytest.raises(UserError, match="clients was 6 and is 7"):
        checkpoint.restore(VirtualEngine(bigger), saved)


@pytest.mark.parametrize("name", sorted(RULES))
@pytest.mark.parametrize("vectors", ["numpy", "torch"])
def test_every_update_rule_goes_on_in_single_precision(name: str, vectors: str) -> None:
    """What a rule remembers need not be of the model's type: Adam counts its steps in doubles."""
    tree = {"algorithm.rule": name, "model.vectors": vectors, "topology.clients": 4, "engine.epochs": 2}
    parts = build(digits().with_changes(tree))
    whole, first, second = (parts.engine("virtual") for _ in range(3))
    run_to_end(whole)
    first.start()
    first.advance(25)
    checkpoint.restore(second, checkpoint.save(first))
    while not second.over:
        second.advance(100)
    for x, y in zip(whole.models, second.models, strict=True):
        assert np.asarray(x).dtype == np.float32
        assert np.array_equal(np.asarray(x), np.asarray(y))
