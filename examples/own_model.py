"""Your own module and tensors: a regression that eight clients learn together, each from its own part.

Run it with `python examples/own_model.py`.
"""

from __future__ import annotations

import sys

import torch
from torch import nn

import swiftfl
from swiftfl.algorithms import Swift
from swiftfl.costs import Costs, Slowdown
from swiftfl.data import Batches, as_dataset, split
from swiftfl.engines import Setup, Virtual
from swiftfl.rules import SGD
from swiftfl.schedule import constant, every
from swiftfl.vector import consensus
from swiftfl.workload import ModuleWorkload

SEED = 0


def waves(samples: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """y = sin(x1) + x2 / 2, with a little noise."""
    random = torch.Generator().manual_seed(seed)
    x = 4 * torch.rand(samples, 2, generator=random) - 2
    noise = 0.05 * torch.randn(samples, generator=random)
    return x, (torch.sin(x[:, 0]) + x[:, 1] / 2 + noise)[:, None]


def main() -> None:
    torch.set_num_threads(1)
    data = as_dataset(waves(800, seed=1), waves(200, seed=2))  # labels that are not integers: targets
    workload = ModuleWorkload(lambda: nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1)), data)
    topology = swiftfl.ring(8)
    coefficients = swiftfl.communication_coefficients(topology)
    parts = split(data, topology.n, SEED)
    engine = Virtual(
        Setup(
            algorithm=Swift(every(1), SGD(momentum=0.9)),
            workload=workload,
            weights=[coefficients.weights(i) for i in range(topology.n)],
            batches=[Batches(parts[i], 10, seed=SEED, client=i) for i in range(topology.n)],
            step_size=constant(0.05),
            influence=coefficients.influence.tolist(),
            costs=Costs(slowdowns=(Slowdown(client=3, factor=4.0),)),
            epochs=20,
            seed=SEED,
        )
    )
    engine.start()
    print(f"test loss at the start   {workload.evaluate(engine.models[:1])[0].loss:.4f}")
    engine.advance(sys.maxsize)
    print(f"of the consensus model   {workload.evaluate([consensus(engine.models)])[0].loss:.4f}")
    print(f"client steps             {engine.iteration}")
    print(f"virtual seconds          {engine.figures()['virtual_seconds']:.2f}")


if __name__ == "__main__":
    main()
