"""`--barrier global` with real clients: each exchange waits for everybody, and for nobody who is gone."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from in_process_job import Ranks
from in_process_wire import Hub
from live_worlds import (
    Unhurried,
    check_replay,
    let_go,
    live_setup,
    pids,
    resumed,
    running,
    steps,
    stop,
    under_way,
    until,
)

from swiftfl.algorithms import dsgd, pasgd
from swiftfl.data.batches import NoSamples
from swiftfl.engines import Setup, VirtualEngine
from swiftfl.engines.live.supervised import SupervisedRun
from swiftfl.engines.setup import Barrier
from swiftfl.sample import Batch, Slope
from swiftfl.transports.codec import Identity
from swiftfl.transports.messages.transport import MessageTransport
from swiftfl.vector import Vector
from worlds import run_to_end

N = 6  # on a ring: three steps from one client to the one opposite


def setup_of(barrier: Barrier, **options: int) -> Setup:
    return live_setup(dsgd(), N, 0.005, "metropolis", barrier=barrier, **{"epochs": 8, **options})


def lead(engine: SupervisedRun) -> float:
    """How many steps the first client is ahead of the last, when nobody moves any more."""
    last, since = steps(engine), time.monotonic()
    while time.monotonic() - since < 1.5:
        time.sleep(0.05)
        if steps(engine) != last:
            last, since = steps(engine), time.monotonic()
    return max(last) - min(last)


@pytest.mark.parametrize(("barrier", "most"), [("global", 0), ("neighbours", 3)])
def test_everybody_waits_for_one_that_is_stopped(barrier: Barrier, most: int, tmp_path: Path) -> None:
    """Without the barrier, clients far from it go on for some rounds. When it is killed, nobody waits."""
    setup = setup_of(barrier, hold=12)
    with running(setup, tmp_path) as engine:
        victim = pids(engine)[0]
        under_way(engine, 4)
        os.kill(victim, signal.SIGSTOP)
        assert lead(engine) in ((0, 1) if barrier == "global" else (most - 1, most))
        os.kill(victim, signal.SIGKILL)
        until(lambda: engine.supervisor.lost == [0], "the loss")
        let_go(setup)
        until(lambda: engine.wait(0.05), "the end")
        assert engine.supervisor.lost == [0]
        assert steps(engine)[1:] == [41.0] * (N - 1)
        check_replay(setup, tmp_path, engine.models, range(1, N))


def test_the_models_are_those_of_virtual_time_also_after_a_stop(tmp_path: Path) -> None:
    setup = setup_of("global", epochs=12, hold=10)
    with running(setup, tmp_path) as engine:
        under_way(engine, 5)
        stop(engine)
    with resumed(setup, tmp_path) as engine:
        until(lambda: engine.wait(0.05), "the end")
        for model, expected in zip(engine.models, run_to_end(VirtualEngine(setup)).models, strict=True):
            assert np.array_equal(model, expected)


class Gated(Unhurried):
    """Client 0 does not end its tenth gradient before it may."""

    gate = threading.Event()

    def gradient(self, x: Vector, batch: Batch) -> Slope:
        if batch.client == 0 and batch.counter == 10:
            self.gate.wait(60)
        return super().gradient(x, batch)


@pytest.mark.parametrize(("barrier", "ahead"), [("global", (0, 1)), ("neighbours", (2, 3))])
def test_ranks_wait_for_a_slow_one(barrier: Barrier, ahead: tuple[int, int], tmp_path: Path) -> None:
    setup = setup_of(barrier)
    workload = Gated(setup.workload, 0.0)
    workload.gate.clear()
    ranks = Ranks(replace(setup, workload=workload), tmp_path)
    until(lambda: steps(ranks.first)[0] == 10, "the tenth step")
    found = lead(ranks.first)
    workload.gate.set()
    ranks.to_the_end()
    assert found in ahead
    for model, expected in zip(ranks.first.models, run_to_end(VirtualEngine(setup)).models, strict=True):
        assert np.array_equal(model, expected)


def test_ranks_do_not_wait_for_one_that_is_lost(tmp_path: Path) -> None:
    """The others are told that client 0 is gone while it does not come to the round."""
    setup = setup_of("global")
    workload = Gated(setup.workload, 0.0)
    workload.gate.clear()
    ranks = Ranks(replace(setup, workload=workload), tmp_path)
    until(lambda: steps(ranks.first)[0] == 10, "the tenth step")
    others = ranks.engines[1:]
    for engine in others:
        engine.transport.mark_gone(0)
    until(lambda: all(engine.status.c(engine.me) > 12 for engine in others), "steps without it")
    workload.gate.set()
    until(lambda: all(engine.status.c(engine.me) == 41 for engine in others), "their last step")


def test_nobody_waits_for_one_that_finished_before_its_first_barrier() -> None:
    """As with few data and rare averaging: client 0 is through before the others come to a barrier."""
    hub, x0 = Hub(3), np.zeros(4)
    ends = [MessageTransport(wire, [(1, 2), (0, 2), (0, 1)], x0, Identity) for wire in hub.wires]
    for end in ends:
        end.take_part_in_barriers()
    ends[0].finish()
    others = [threading.Thread(target=end.barrier, args=(7,), daemon=True) for end in ends[1:]]
    for other in others:
        other.start()
    until(lambda: not any(other.is_alive() for other in others), "the others pass the barrier")
    for end in ends:
        end.close()


@pytest.mark.parametrize("barrier", ["global", "neighbours"])
def test_ranks_do_not_wait_for_one_that_finished_before_its_first_exchange(
    barrier: Barrier, tmp_path: Path
) -> None:
    """It has four steps, and averages at the ninth; what others offer to it is taken and dropped."""
    setup = live_setup(pasgd(9), 3, 0.0, "metropolis", barrier=barrier, epochs=1)
    few = [NoSamples(i, 4 if i == 0 else 60) for i in range(3)]
    ranks = Ranks(replace(setup, batches=few), tmp_path)
    ranks.to_the_end()
    assert ranks.first.supervisor.lost == []
    assert steps(ranks.first) == [5, 61, 61]
