"""Running buffers that stay each client's own: against torch modules whose parameters alone are averaged."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import swiftfl
from swiftfl.algorithms import AdPsgd, AllReduceSgd, FedAvg, Gossip, Swift, dsgd
from swiftfl.data.batches import Batches
from swiftfl.data.parse import partition
from swiftfl.data.synthetic import synthetic
from swiftfl.engines import SampledEngine, Setup, VirtualEngine
from swiftfl.engines.setup import Buffers
from swiftfl.errors import UserError
from swiftfl.graph import communication_coefficients
from swiftfl.rules import SgdRule
from swiftfl.schedule import constant, every
from swiftfl.workload import ModuleWorkload
from swiftfl.workload.recorded_model import build_module
from worlds import quadratic_setup, resumed, run_to_end

N, EPOCHS, STEP_SIZE = 4, 3, 0.05
RING = swiftfl.ring(N)
RULE = SgdRule(momentum=0.9, weight_decay=0.01)
DATA = synthetic(samples=96, shape=(6,), classes=3)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3), nn.BatchNorm1d(3))


def setup(algorithm: Any, buffers: Buffers = "own", **options: Any) -> Setup:
    workload = ModuleWorkload(network, DATA, dtype=torch.float64, batching="off")
    w = communication_coefficients(RING, method="metropolis")
    parts = partition("iid", DATA.labels, N, 0)
    return Setup(
        algorithm,
        workload,
        [w.weights(i) for i in range(N)],
        [Batches(parts[i], 8, seed=0, client=i) for i in range(N)],
        constant(STEP_SIZE),
        w.influence.tolist(),
        epochs=EPOCHS,
        buffers=buffers,
        **options,
    )


class TorchClients:
    """Modules with their optimisers; `average` touches parameters() alone, as the authors' code."""

    def __init__(self, run: Setup) -> None:
        self.run = run
        workload = run.workload
        assert isinstance(workload, ModuleWorkload)
        first = build_module(workload._given, run.seed, workload.dtype)
        self.modules = [copy.deepcopy(first).train() for _ in range(N)]
        self.optimisers = [
            torch.optim.SGD(m.parameters(), lr=STEP_SIZE, momentum=0.9, weight_decay=0.01)
            for m in self.modules
        ]
        self.rounds = EPOCHS * run.batches[0].steps_per_epoch

    def backward(self, i: int, c: int) -> None:
        batch = self.run.batches[i](c)
        chosen = torch.as_tensor(batch.indices)
        inputs, labels = DATA.train_inputs[chosen].double(), DATA.train_labels[chosen]
        self.optimisers[i].zero_grad()
        nn.functional.cross_entropy(self.modules[i](inputs), labels).backward()

    @torch.no_grad()
    def average(self) -> None:
        """Everybody with its neighbours, by the weights of the run."""
        before = [[p.clone() for p in m.parameters()] for m in self.modules]
        for i, module in enumerate(self.modules):
            w = self.run.weights[i]
            for k, p in enumerate(module.parameters()):
                p.copy_(w.own * before[i][k] + sum(w[j] * before[j][k] for j in w.of))

    def vectors(self) -> np.ndarray:
        def flat(module: nn.Module) -> torch.Tensor:
            norms = [m for m in module.modules() if isinstance(m, nn.BatchNorm1d)]
            running = [b for m in norms for b in (m.running_mean, m.running_var) if b is not None]
            return torch.cat([t.detach().reshape(-1) for t in (*module.parameters(), *running)])

        return torch.stack([flat(m) for m in self.modules]).numpy()


@pytest.mark.parametrize("engine", [VirtualEngine, SampledEngine])
@pytest.mark.parametrize("order", ["average_first", "update_first"])
def test_dsgd_is_backward_average_step_of_real_batch_norm_modules(engine: Any, order: Any) -> None:
    run = setup(dsgd(RULE, order))
    torch_clients = TorchClients(run)
    for c in range(1, torch_clients.rounds + 1):
        for i in range(N):
            torch_clients.backward(i, c)
        if order == "average_first":
            torch_clients.average()
        for optimiser in torch_clients.optimisers:
            optimiser.step()
        if order == "update_first":
            torch_clients.average()
    ours = np.stack(run_to_end(engine(run)).models)
    np.testing.assert_allclose(ours, torch_clients.vectors(), rtol=0, atol=1e-12)


ALGORITHMS = {
    "swift": Swift(every(0), RULE),
    "dsgd": dsgd(RULE),
    "gossip": Gossip(RING, RULE, seed=1),
    "adpsgd": AdPsgd(RULE, seed=1),
    "adpsgd, background": AdPsgd(RULE, seed=1, averaging="background"),
    "allreduce": AllReduceSgd(RULE),
    "fedavg": FedAvg(every(1), RULE),
}


@pytest.mark.parametrize("engine", [VirtualEngine, SampledEngine])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_clients_buffers_follow_its_own_batches_whatever_is_averaged(name: str, engine: Any) -> None:
    """Each is seen at its gradients: its buffers are those of a client that never averages, step by step."""
    run = setup(ALGORITHMS[name])
    seen: list[dict[int, np.ndarray]] = [{} for _ in range(N)]
    kept: list[dict[int, np.ndarray]] = [{} for _ in range(N)]
    workload: Any = run.workload
    plain, tail = workload.piece, workload.buffers

    def watched(way: str, xs: Any, batches: Any) -> Any:
        slopes = plain(way, xs, batches)
        for x, batch, slope in zip(xs, batches, slopes, strict=True):
            seen[batch.client][batch.counter] = x[-tail:].copy()
            s = slope.statistics
            assert s is not None
            kept[batch.client][batch.counter + 1] = x[-tail:] + s.rate * (s.values - x[-tail:])
        return slopes

    workload.piece = watched
    world = run_to_end(engine(run))
    last = EPOCHS * run.batches[0].steps_per_epoch
    for i in range(N):
        for c in range(2, last + 1):
            np.testing.assert_allclose(seen[i][c], kept[i][c], rtol=0, atol=1e-14)
        np.testing.assert_allclose(world.models[i][-tail:], kept[i][last + 1], rtol=0, atol=1e-14)
    models = np.stack(world.models)
    assert (models[:, -tail:].std(axis=0) > 1e-4).any()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_resumed_in_the_middle_it_is_the_same_run(name: str) -> None:
    paused = VirtualEngine(setup(ALGORITHMS[name]))
    paused.start()
    paused.advance(13)
    going_on = resumed(paused, VirtualEngine(setup(ALGORITHMS[name])))
    going_on.advance(10**9)
    for mine, theirs in zip(
        going_on.models, run_to_end(VirtualEngine(setup(ALGORITHMS[name]))).models, strict=True
    ):
        np.testing.assert_array_equal(mine, theirs)


def test_mixes_in_one_product_keep_buffers_as_well() -> None:
    from swiftfl.engines.simulation import batched_mix
    from swiftfl.engines.simulation.batched_mix import BatchedMixes
    from swiftfl.vector import Weights, mix
    from swiftfl.verbs import Mix

    run = setup(Swift())
    rows = np.random.default_rng(0).normal(size=(4, run.workload.initial(0).size))
    verbs = [Mix(Weights(0.5, {0: 0.25, 1: 0.25}), rows[k], {0: rows[0], 1: rows[1]}) for k in (2, 3)]

    class Parked:
        def __init__(self, parked: Mix) -> None:
            self.parked = parked

    mixes = BatchedMixes([Parked(verb) for verb in verbs], run.keep_buffers, 1)  # type: ignore[misc]
    mixes.waiting[:] = [0, 1]
    mixes.serve()
    for (_, half), verb in zip(mixes.ready, verbs, strict=True):
        np.testing.assert_array_equal(half, run.keep_buffers(mix(verb.w, verb.x, verb.inbox), verb.x))
        np.testing.assert_array_equal(half[-run.workload.buffers :], verb.x[-run.workload.buffers :])
    assert batched_mix.mix_many([]) == []


def test_a_model_without_buffers_is_refused() -> None:
    with pytest.raises(UserError, match=r"no running buffers .* leave out --buffers own"):
        quadratic_setup(Swift(), buffers="own")
