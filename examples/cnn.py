"""Your own CNN, dataset and graph: SWIFT against D-SGD, with data that differ and one slow client.

Run it with `python examples/cnn.py`.
"""

import networkx as nx
import torch
from torch import nn

import swiftfl


class Bars(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """Noisy pictures of a bar in one of eight rows."""

    def __init__(self, samples: int, seed: int) -> None:
        self.noise = torch.randn(samples, 1, 8, 8, generator=torch.Generator().manual_seed(seed))

    def __len__(self) -> int:
        return len(self.noise)

    def __getitem__(self, k: int) -> tuple[torch.Tensor, int]:
        return self.noise[k] + 1.2 * torch.eye(8)[k % 8][:, None], k % 8


def cnn() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 8))


found = swiftfl.compare(
    {"SWIFT": "swift", "D-SGD": "dsgd"}, cnn, Bars(640, seed=1), Bars(200, seed=2), epochs=6, slowdown={5: 4},
    topology=nx.random_regular_graph(4, 8, seed=0), partition="dirichlet:0.3,min=10",
    optimizer=swiftfl.SGD(lr=0.05, momentum=0.9),
)  # fmt: skip
print(found.table())
found.plot("cnn.svg")
