"""Numbers in place of classes: eight clients learn y = sin(x1) + x2 / 2 together.

Run it with `python examples/regression.py`.
"""

import torch
from torch import nn

import swiftfl


def waves(samples: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = 4 * torch.rand(samples, 2, generator=torch.Generator().manual_seed(seed)) - 2
    return x, torch.sin(x[:, 0]) + x[:, 1] / 2


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))


optimizer = swiftfl.SGD(lr=0.05, momentum=0.9)
result = swiftfl.train(net, waves(800, 1), waves(200, 2), clients=8, slowdown={3: 4}, optimizer=optimizer)
print(result)
print("sin(1) + 1/2 = 1.341; the model says", round(result.model()(torch.tensor([[1.0, 1.0]])).item(), 3))
