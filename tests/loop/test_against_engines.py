"""`swiftfl.Optimizer` against `Swift` in an engine: the same order of steps, the same bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from in_process_peers import Shared
from torch import Tensor, nn

import swiftfl
from swiftfl.engines.simulation.sampled import SampledEngine
from swiftfl.loop.federation import OwnBatches, federation
from swiftfl.sample import Batch, Slope
from swiftfl.vector import Memory, Vector
from swiftfl.workload.base import Evaluation

N, STEPS = 5, 30
Make = Callable[[list[Tensor]], torch.optim.Optimizer]


def network() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))


SHAPES = [tuple(p.shape) for p in network().parameters()]
SIZES = [p.numel() for p in network().parameters()]


def loss_of(net: nn.Module, client: int, counter: int) -> Tensor:
    draw = torch.Generator().manual_seed(1000 * client + counter)
    x, y = torch.randn(8, 5, generator=draw), torch.randint(3, (8,), generator=draw)
    return nn.functional.cross_entropy(net(x), y)


def pieces(x: Vector) -> list[Tensor]:
    parts = torch.from_numpy(x.copy()).split(SIZES)
    return [part.view(shape).clone() for part, shape in zip(parts, SHAPES, strict=True)]


def flat(tensors: list[Tensor]) -> Vector:
    out: Vector = torch.cat([t.detach().reshape(-1) for t in tensors]).numpy()
    return out


@dataclass(frozen=True)
class TorchRule:
    """A torch optimizer as a pure function of gradient, model and memory: made anew for every update."""

    make: Make
    remembers: tuple[str, ...]

    def init(self, x: Vector) -> Memory:
        return {"step": np.zeros(1, x.dtype), **{name: np.zeros_like(x) for name in self.remembers}}

    def update(self, g: Vector, x: Vector, step_size: float, memory: Memory) -> tuple[Vector, Memory]:
        params = pieces(x)
        for p, grad in zip(params, pieces(g), strict=True):
            p.grad = grad
        optimizer = self.make(params)
        past = {name: pieces(memory[name]) for name in self.remembers}
        for k, p in enumerate(params):
            optimizer.state[p] = {name: past[name][k] for name in self.remembers}
            optimizer.state[p]["step"] = torch.tensor(float(memory["step"][0]))
        optimizer.step()
        kept = {name: flat([optimizer.state[p][name] for p in params]) for name in self.remembers}
        return flat(params) - x, {"step": memory["step"] + 1, **kept}


class Problem:
    """The same gradients for the engine."""

    name, parameters, buffers = "problem", sum(SIZES), 0

    def initial(self, seed: int) -> Vector:
        return flat(list(network().parameters()))

    def gradient(self, x: Vector, batch: Batch) -> Slope:
        net = network()
        with torch.no_grad():
            for p, values in zip(net.parameters(), pieces(x), strict=True):
                p.copy_(values)
        loss = loss_of(net, batch.client, batch.counter)
        loss.backward()
        return Slope(flat([p.grad for p in net.parameters() if p.grad is not None]), loss.item())

    def gradients(self, xs: list[Vector], batches: list[Batch]) -> list[Slope]:
        return [self.gradient(x, batch) for x, batch in zip(xs, batches, strict=True)]

    def evaluate(self, xs: list[Vector]) -> list[Evaluation]:
        return [Evaluation(0.0, None) for _ in xs]


RULES = {
    "sgd": (lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, weight_decay=1e-2), ("momentum_buffer",)),
    "nesterov": (lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, nesterov=True), ("momentum_buffer",)),
    "adamw": (lambda ps: torch.optim.AdamW(ps, lr=1e-2, weight_decay=0.1), ("exp_avg", "exp_avg_sq")),
}


@pytest.mark.parametrize(
    ("rule", "algorithm"),
    [
        ("sgd", "swift"),
        ("nesterov", "swift"),
        ("adamw", "swift"),
        ("sgd", "swift:communication_set=2"),
        ("sgd", "swift:broadcast=after"),
        ("sgd", "swift:decay_at=average"),
    ],
)
def test_the_same_models_as_the_engine(rule: str, algorithm: str) -> None:
    make, remembers = RULES[rule]
    together = federation(N, "ring", algorithm=algorithm)
    engine = SampledEngine(
        replace(
            together.setup(TorchRule(make, remembers)),
            workload=Problem(),
            batches=[OwnBatches(i) for i in range(N)],
            iterations=STEPS,
        )
    )
    order = [engine.draw() for _ in range(STEPS)]
    engine._draws = 0  # the engine draws the same again
    engine.start()
    while not engine.over:
        engine.advance(1)

    shared = Shared(together)
    nets = [network() for _ in range(N)]
    optimizers = [
        swiftfl.Optimizer(make(list(net.parameters())), net, peer)
        for net, peer in zip(nets, shared.peers(), strict=True)
    ]
    counters = [1] * N
    for i in order:
        optimizers[i].zero_grad()
        loss_of(nets[i], i, counters[i]).backward()
        optimizers[i].step()
        counters[i] += 1
    for i in range(N):
        assert np.array_equal(flat(list(nets[i].parameters())), engine.models[i]), i
    assert not np.array_equal(engine.models[0], engine.models[1])
