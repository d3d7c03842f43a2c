"""An experiment of one's own for tests: small, with a model, data, a metric and an algorithm of its own."""

EXPERIMENT = """
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from swiftfl.client import State
from swiftfl.rules import SgdRule
from swiftfl.vector import advance
from swiftfl.verbs import Fetch, Gradient, Mix, Publish

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        return self.layer(x)

def data(samples):
    random = torch.Generator().manual_seed(samples)
    x = torch.randn(samples, 3, generator=random)
    return x, (x.sum(dim=1) > 0).long()

def share_of_ones(outputs, labels):
    return float((outputs.argmax(dim=1) == 1).double().mean())

@dataclass(frozen=True)
class Often:
    rule: SgdRule = SgdRule(momentum=0.5)
    name: str = "often"
    in_rounds: ClassVar[bool] = False

    def step(self, me, s):
        yield from Publish(s.x, me.neighbours, version=s.c)
        slope = yield from Gradient(s.x, me.batch(s.c))
        inbox = yield from Fetch(me.neighbours)
        half = yield from Mix(me.w, s.x, inbox)
        move, memory = self.rule.update(slope.g, s.x, me.step_size(s.c), s.memory)
        return State(advance(half, move, slope.statistics), s.c + 1, memory)

def experiment():
    return {"model": Net, "train": data(96), "test": data(40), "metrics": {"ones": share_of_ones},
            "algorithm": Often(), "clients": 3, "epochs": 6, "batch_size": 8}
"""
