"""Code of your own in one file: a model, data, a loss, a metric, an algorithm, and an experiment with them.

    swiftfl run examples/own_code/mine.py:experiment
    swiftfl run examples/own_code/mine.py:experiment --engine local --epochs 5
    mpiexec -n 4 swiftfl run examples/own_code/mine.py:experiment --engine mpi

Each of them may also stand where swiftfl has a name of its own:

    swiftfl run digits --model examples/own_code/mine.py:Net --set model.options.hidden=16
    swiftfl run digits --algorithm examples/own_code/mine.py:Lazy --set algorithm.far=2
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from swiftfl.client import Client, State
from swiftfl.rules import SgdRule, UpdateRule
from swiftfl.vector import advance
from swiftfl.verbs import Fetch, Gradient, Mix, Publish, WaitFree


class Net(nn.Sequential):
    """One hidden layer; `shape` and `classes` are those of the data, `hidden` is an option."""

    def __init__(self, shape: Sequence[int] = (2,), classes: int = 2, hidden: int = 32) -> None:
        size = int(np.prod(shape))
        super().__init__(nn.Flatten(), nn.Linear(size, hidden), nn.Tanh(), nn.Linear(hidden, classes))


def spirals(samples: int = 600, turns: float = 0.75, seed: int = 0) -> tuple[Any, Any]:
    """Two spirals that no line separates: (train, test), each (inputs, labels)."""
    draw = np.random.default_rng(seed)

    def points(count: int) -> tuple[Tensor, Tensor]:
        label = np.arange(count) % 2
        radius = draw.uniform(0.2, 1.0, count)
        angle = 2 * np.pi * turns * radius + np.pi * label
        x = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
        x += 0.02 * draw.standard_normal(x.shape)
        return torch.tensor(x, dtype=torch.float32), torch.tensor(label)

    return points(samples), points(samples // 3)


def smoothed(outputs: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy with labels that are a little unsure."""
    return functional.cross_entropy(outputs, labels, label_smoothing=0.05)


def worst_class(outputs: Tensor, labels: Tensor) -> float:
    """The accuracy on the class on which it is lowest."""
    right = outputs.argmax(dim=1) == labels
    return min(float(right[labels == k].double().mean()) for k in labels.unique())


@dataclass(frozen=True)
class Lazy:
    """SWIFT that averages only when some neighbour's model is further away than `far`."""

    far: float = 0.1
    rule: UpdateRule = SgdRule(momentum=0.9)
    name: str = "lazy"
    in_rounds: ClassVar[bool] = False

    def step(self, me: Client, s: State) -> Generator[WaitFree, object, State]:
        yield from Publish(s.x, me.neighbours, version=s.c)
        slope = yield from Gradient(s.x, me.batch(s.c))
        inbox = yield from Fetch(me.neighbours)
        half = s.x
        if max((float(np.linalg.norm(x - s.x)) for x in inbox.values()), default=0.0) > self.far:
            half = yield from Mix(me.w, s.x, inbox)
        move, memory = self.rule.update(slope.g, s.x, me.step_size(s.c), s.memory)
        return State(advance(half, move, slope.statistics), s.c + 1, memory)


def experiment() -> dict[str, Any]:
    """The arguments of `swiftfl.train`."""
    train, test = spirals()
    return {
        "model": Net,
        "train": train,
        "test": test,
        "loss": smoothed,
        "metrics": {"worst_class": worst_class},
        "algorithm": Lazy(),
        "clients": 4,
        "partition": "dirichlet:0.5",
        "epochs": 20,
    }
