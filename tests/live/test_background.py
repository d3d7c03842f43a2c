"""AD-PSGD's averaging beside the gradient, in a live client."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from live_worlds import LIMIT, live_setup, resumed, running, steps, stop, under_way

from swiftfl.algorithms import AdPsgd
from swiftfl.client import State
from swiftfl.engines.live.background import Background
from swiftfl.engines.live.client import LiveClient
from swiftfl.engines.live.journal import Journal
from swiftfl.engines.live.saves import Saver
from swiftfl.engines.terms import Terms
from swiftfl.sample import Batch, Slope
from swiftfl.transports.base import Stopped
from swiftfl.transports.memory import MemoryPlan, MemoryTransport
from swiftfl.vector import Vector

BACKGROUND = AdPsgd(averaging="background")


class Meeting:
    """A gradient that ends only when the averaging has begun, and the other way round."""

    def __init__(self, workload: Any) -> None:
        self._workload = workload
        self.name, self.parameters, self.buffers = workload.name, workload.parameters, workload.buffers
        self.computing, self.averaging = threading.Event(), threading.Event()
        self.met: list[bool] = []

    def gradient(self, x: Vector, batch: Batch) -> Slope:
        self.computing.set()
        self.met.append(self.averaging.wait(LIMIT))
        slope: Slope = self._workload.gradient(x, batch)
        return slope


class MeetingTransport(MemoryTransport):
    meeting: Meeting

    def average_with(self, neighbour: int) -> Vector:
        self.meeting.averaging.set()
        self.meeting.met.append(self.meeting.computing.wait(LIMIT))
        return super().average_with(neighbour)


class Silent:
    """A control that is never used within a step."""


def test_gradient_and_averaging_run_at_the_same_time_and_the_gradient_is_taken_before_it() -> None:
    setup = live_setup(BACKGROUND, n=2, method="metropolis")
    quadratic = setup.workload._workload  # type: ignore[attr-defined]
    meeting = Meeting(quadratic)
    setup = replace(setup, workload=meeting)  # type: ignore[arg-type]
    x = quadratic.initial(0) + 1.0
    plan = MemoryPlan([(1,), (0,)], quadratic.initial(0))
    plan.connect(1).set_cell(x + 4.0)
    end = MeetingTransport(plan, 0)
    end.meeting = meeting
    end.set_cell(x)
    client = LiveClient(
        setup,
        0,
        State(x),
        0,
        end,
        Silent(),
        Journal(None, print),
        Saver(None, 0, 0, print),
        Terms(setup.weights[0]),
    )  # type: ignore[arg-type]
    client.step()
    assert meeting.met == [True, True]
    g = quadratic.gradient(x, setup.batches[0](1)).g
    np.testing.assert_allclose(client.state.x, x + 2.0 - setup.step_size(0) * g, rtol=1e-14)
    np.testing.assert_allclose(plan.connect(1).load(), x + 2.0, rtol=1e-14)


def test_what_the_background_raises_is_raised_where_its_result_is_asked_for() -> None:
    def stopped() -> Vector:
        raise Stopped

    background = Background()
    background.begin(stopped)
    with pytest.raises(Stopped):
        background.result()
    background.begin(lambda: np.ones(3))
    assert background.result().sum() == 3.0


def test_a_run_that_averages_in_the_background_stops_saves_and_resumes(tmp_path: Path) -> None:
    setup, folder = live_setup(BACKGROUND, method="metropolis", epochs=16, hold=15), tmp_path / "clients"
    with running(setup, folder, patience=LIMIT) as engine:
        under_way(engine, 8)
        stop(engine)
        stopped_at = steps(engine)
    with resumed(setup, folder) as engine:
        assert [start.c for start in engine.resume.starts if start] == stopped_at
        assert engine.wait(LIMIT)
        assert steps(engine) == [81.0] * 4
        assert np.isfinite(engine.models).all()
