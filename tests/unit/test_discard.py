"""What is kept of a step whose numbers are not finite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import swiftfl
from swiftfl.algorithms import FedAvg
from swiftfl.client import State
from swiftfl.engines import VirtualEngine
from swiftfl.engines.discard import contribution, kept, movable, moved
from swiftfl.rules import SgdRule
from swiftfl.sample import Batch, Slope
from swiftfl.schedule import every
from swiftfl.vector import Statistics, Vector, finite
from swiftfl.verbs import Add, AllReduce
from swiftfl.workload.quadratic import Quadratic
from worlds import quadratic_setup, run_to_end

BAD = [np.nan, np.inf, -np.inf]


def vector(*numbers: float) -> np.ndarray:
    return np.array(numbers, dtype=np.float32)


def test_a_finite_step_is_kept_as_it_is() -> None:
    end = State(vector(1, 2), 4, {"momentum": vector(0, 1)})
    assert kept(State(vector(0, 0), 3), end) == (end, False)


@pytest.mark.parametrize("bad", BAD)
def test_a_model_that_is_not_finite_is_discarded_with_its_memory(bad: float) -> None:
    start = State(vector(0, 0), 3, {"momentum": vector(5, 5)})
    state, discarded = kept(start, State(vector(1, bad), 4, {"momentum": vector(1, 1)}))
    assert discarded
    assert (state.x is start.x, state.c, state.memory is start.memory) == (True, 4, True)


@pytest.mark.parametrize("bad", BAD)
def test_a_memory_that_is_not_finite_is_the_earlier_one(bad: float) -> None:
    """Such as Adam's second moment: infinite, it makes moves of zero, and the client never moves again."""
    start = State(vector(0, 0), 3, {"mean": vector(0, 0), "square": vector(5, 5)})
    end = State(vector(1, 1), 4, {"mean": vector(0, 0), "square": vector(bad, 1)})
    state, discarded = kept(start, end)
    assert discarded
    assert (state.x is end.x, state.c, state.memory is start.memory) == (True, 4, True)


@pytest.mark.parametrize("bad", BAD)
def test_a_move_that_is_not_finite_is_left_out_of_a_cell(bad: float) -> None:
    cell = vector(1, 2)
    assert moved(cell, vector(bad, 0), None) is cell
    assert moved(cell, vector(0, 0), Statistics(vector(bad), 0.5)) is cell
    assert (moved(cell, vector(1, 1), None) == vector(2, 3)).all()
    assert not movable(Add(vector(bad, 0)))
    assert not movable(Add(vector(0, 0), Statistics(vector(bad), 0.5)))
    assert movable(Add(vector(0, 0), Statistics(vector(1), 0.5)))


@pytest.mark.parametrize("bad", BAD)
def test_a_value_that_is_not_finite_has_no_weight_in_a_mean(bad: float) -> None:
    value, weight = contribution(AllReduce(vector(1, bad), 0.25, round=3))
    assert (value.tolist(), value.dtype, weight) == ([0.0, 0.0], np.float32, 0.0)
    value, weight = contribution(AllReduce(vector(1, 2), 0.25, round=3))
    assert (value.tolist(), weight) == ([1.0, 2.0], 0.25)


def test_large_numbers_whose_square_overflows_are_finite() -> None:
    with np.errstate(over="ignore"):
        assert finite(vector(3e38, 1))
        assert not finite(vector(3e38, np.nan))


class OneBadGradient(Quadratic):
    """That of client 2 at step 4 is not finite."""

    def gradient(self, x: Vector, batch: Batch) -> Slope:
        slope = super().gradient(x, batch)
        return replace(slope, g=slope.g * np.nan) if (batch.client, batch.counter) == (2, 4) else slope

    def gradients(self, xs: Sequence[Vector], batches: Sequence[Batch]) -> list[Slope]:
        return [self.gradient(x, batch) for x, batch in zip(xs, batches, strict=True)]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("local_steps", [0, 1])
def test_a_bad_step_of_fedavg_counts_once(momentum: float, local_steps: int) -> None:
    """Its value has no weight in the mean and its momentum is not finite: two reasons, one step."""
    algorithm = FedAvg(every(local_steps), SgdRule(momentum))
    setup, _, _ = quadratic_setup(algorithm, swiftfl.ring(4), method="metropolis", epochs=3)
    bad = OneBadGradient.random(4, 7)
    engine = run_to_end(VirtualEngine(replace(setup, workload=bad)))
    assert [record.discarded for record in engine.world.records] == [0, 0, 1, 0]
