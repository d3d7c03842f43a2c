"""Large models in processes: the record repeats them bit for bit, and a step makes no vector."""

from __future__ import annotations

import contextlib
import os
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from live_worlds import LIMIT, check_replay, live_setup, running
from torch import Tensor, nn

import swiftfl
from swiftfl import kernels
from swiftfl.algorithm import Algorithm
from swiftfl.algorithms import AdPsgd, AllReduceSgd, FedAvg, Swift, dsgd
from swiftfl.data.synthetic import synthetic
from swiftfl.engines import Setup
from swiftfl.engines.live.by_hand import first_client, memory_for
from swiftfl.engines.live.inbox import Gate, LazyInbox, NewestInbox
from swiftfl.engines.live.local.forkserver import fork_child, run_and_exit
from swiftfl.graph import communication_coefficients
from swiftfl.recycled import LARGE
from swiftfl.rules import AdamRule, SgdRule, UpdateRule
from swiftfl.sample import Batch
from swiftfl.schedule import constant, every
from swiftfl.transports.base import Stopped
from swiftfl.transports.memory import MemoryPlan
from swiftfl.transports.shared_memory.transport import SharedMemory, SharedMemoryTransport
from swiftfl.vector import Vector, Weights
from swiftfl.verbs import Verb
from swiftfl.workload.module import ModuleWorkload


@pytest.mark.parametrize(
    "algorithm",
    [Swift(every(0), SgdRule(0.9)), Swift(every(1), AdamRule()), dsgd(SgdRule(0.9))],
    ids=["swift", "swift with adam", "dsgd"],
)
def test_a_run_of_large_models_is_replayed_bit_for_bit(algorithm: Algorithm[Verb], tmp_path: Path) -> None:
    setup = live_setup(algorithm, n=3, seconds=0.0, dimension=LARGE + 99, epochs=8)
    with running(setup, tmp_path) as engine:
        assert engine.wait(LIMIT)
        live = engine.models
    check_replay(setup, tmp_path, live)
    assert not np.array_equal(live[0], live[1])


# --- a model that may not be used --------------------------------------------------------------------


def taken(inbox: LazyInbox, w: Weights, x: Vector) -> Vector:
    with np.errstate(all="ignore"):
        return inbox.mix(w, x, np.empty_like(x))


@pytest.mark.parametrize("degree", [2, 40])
def test_whoever_is_refused_leaves_its_weight_to_self(degree: int) -> None:
    """In one pass, and in several where more neighbours are averaged than are held at once."""
    x = np.linspace(0, 1, LARGE + 5, dtype=np.float32)
    star = [tuple(range(1, degree + 1)), *[(0,)] * degree]
    plan = MemoryPlan(star, x)
    models = {k: x + k for k in range(1, degree + 1)}
    models[2] = np.where(x < 0.5, x, np.inf).astype(np.float32)
    for k, model in models.items():
        plan.connect(k).publish(model, 5)
    w = Weights(0.5, dict.fromkeys(range(1, degree + 1), 0.5 / degree))
    gate = Gate(x)
    inbox = NewestInbox(plan.connect(0), list(range(1, degree + 1)), gate)
    out = taken(inbox, w, x)
    expected = x * np.float32(w.own)
    for k, coefficient in w.of.items():
        expected += (x if k == 2 else models[k]) * np.float32(coefficient)
    assert bytes(out) == bytes(expected)
    assert gate.refused["not_finite"] == 1
    assert 2 not in inbox.fetched
    assert len(inbox.fetched) == degree - 1


# --- memory -------------------------------------------------------------------------------------------


class Wide(nn.Module):
    """A large layer, and a normalisation with running buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, LARGE), nn.Linear(LARGE, 2))
        self.norm = nn.BatchNorm1d(64)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(self.norm(x))


class SameFour:
    steps_per_epoch = 1 << 30

    def __call__(self, c: int) -> Batch:
        return Batch(0, c, np.arange(4))


def rest(neighbour: SharedMemoryTransport, x: Vector, c: int) -> None:
    """Nobody waits for the neighbours: their mailboxes and cells are there."""


def offer(neighbour: SharedMemoryTransport, x: Vector, c: int) -> None:
    neighbour.offer(x, c, (0,))
    neighbour.collect(0, c, lambda model: None)


def give(neighbour: SharedMemoryTransport, x: Vector, c: int) -> None:
    neighbour.all_reduce(x, 1 / 3, c)


Part = Callable[[SharedMemoryTransport, Vector, int], None]
MAKE: dict[str, tuple[Callable[[UpdateRule], Algorithm[Verb]], Part]] = {
    "swift": (lambda rule: Swift(every(0), rule), rest),
    "dsgd": (dsgd, offer),
    "adpsgd": (AdPsgd, rest),
    "adpsgd, background": (lambda rule: AdPsgd(rule, averaging="background"), rest),
    "fedavg": (lambda rule: FedAvg(every(0), rule), give),
    "allreduce": (AllReduceSgd, give),
}
WARM, STEPS = 4, 7
BLOCKS = 7 * kernels.BLOCK * 4
"""Bytes of what is in between where a rule is asked for one block after the other (Adam's, and AD-PSGD's)."""


def forked_neighbour(plan: SharedMemory, k: int, part: Part, x: Vector) -> int:
    """Client k's part in all steps, in a process of its own, whose memory is not this one's."""
    pid = fork_child()
    if pid == 0:
        run_and_exit(lambda: do_part(plan, k, part, x))
    return pid


def do_part(plan: SharedMemory, k: int, part: Part, x: Vector) -> int:
    neighbour = plan.connect(k)
    with contextlib.suppress(Stopped):  # the last ones need not be waited for
        for c in range(1, STEPS + 1):
            part(neighbour, x, c)
    return 0


@pytest.mark.parametrize("rule", [SgdRule(0.9, 1e-4), AdamRule()], ids=["sgd", "adam"])
@pytest.mark.parametrize("buffers", ["averaged", "own"])
@pytest.mark.parametrize("name", MAKE)
def test_a_live_step_in_steady_state_makes_no_vector(name: str, buffers: str, rule: UpdateRule) -> None:
    """Meeting others, gradient into its flat vector, update, check: NumPy allocates nothing of model size."""
    torch.manual_seed(0)
    workload = ModuleWorkload(Wide, synthetic(64, (64,), 2, seed=0))
    coefficients = communication_coefficients(swiftfl.ring(3), None, "ccs")
    weights = [coefficients.weights(i) for i in range(3)]
    make, part = MAKE[name]
    setup = Setup(
        make(rule), workload, weights, [SameFour()] * 3, constant(0.01), [1 / 3] * 3, epochs=1,
    )  # fmt: skip
    setup = replace(setup, buffers=buffers)  # type: ignore[arg-type]
    plan, x0 = memory_for(setup), workload.initial(0)
    neighbours = [forked_neighbour(plan, k, part, x0) for k in weights[0].of]
    try:
        client = first_client(setup, plan)
        with np.errstate(all="ignore"):
            for _ in range(WARM):
                client.step()
            tracemalloc.start()
            try:
                before = tracemalloc.get_traced_memory()[0]
                for _ in range(STEPS - WARM):
                    client.step()
                peak = tracemalloc.get_traced_memory()[1] - before
            finally:
                tracemalloc.stop()
    finally:
        plan.stop()
        for pid in neighbours:
            os.waitpid(pid, 0)
    assert client.state.c == STEPS + 1
    assert np.isfinite(client.state.x).all()
    assert peak < BLOCKS < client.state.x.nbytes / 4
