"""The gradient in one vector: autograd's bits, and no second model's worth of memory."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from swiftfl.data.synthetic import synthetic
from swiftfl.sample import Batch
from swiftfl.workload.collected import AT_ONCE, CollectedGradient
from swiftfl.workload.device_vector import DeviceVector
from swiftfl.workload.flat import layout
from swiftfl.workload.module import ModuleWorkload

WIDE = 400
"""WIDE * WIDE numbers are copied at once."""
assert WIDE * WIDE >= AT_ONCE


class Tied(nn.Module):
    """A large parameter is used twice, one never; small ones stand before, between and after."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, WIDE)
        self.middle = nn.Linear(WIDE, WIDE)
        self.norm = nn.BatchNorm1d(WIDE)
        self.unused = nn.Parameter(torch.ones(WIDE, WIDE))
        self.unused_too = nn.Parameter(torch.ones(3))
        self.last = nn.Linear(WIDE, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.middle(torch.relu(self.first(x))))
        out: Tensor = self.last(self.norm(self.middle(x)))
        return out


class Convolutions(nn.Module):
    """Their gradients lie in memory with the channels last, and have to be put in order."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 64, 3), nn.Conv2d(64, 256, 3), nn.ReLU(), nn.Flatten())
        self.last = nn.LazyLinear(2)
        self(torch.zeros(1, 3, 8, 8))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.layers(x.contiguous(memory_format=torch.channels_last)))
        return out


class Hooked(Tied):
    """Hooks of the module's own, which come with each forward pass: a workload's copy has no others."""

    def __init__(self) -> None:
        super().__init__()
        self.handles: list[Any] = []

    def forward(self, x: Tensor) -> Tensor:
        for handle in self.handles:
            handle.remove()
        last, middle = self.last.weight, self.middle.weight
        self.handles = [last.register_hook(lambda g: g + 1), middle.register_hook(lambda g: g * 3)]
        return super().forward(x)


def plain(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def with_penalty(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """A gradient within the loss: whoever collects the outer one must leave it alone."""
    loss, owned = plain(model, batch), list(model.parameters())
    inner = torch.autograd.grad(loss, owned, create_graph=True, allow_unused=True)
    return loss + sum(each.square().sum() for each in inner if each is not None)


def expected(model: nn.Module, loss: Tensor) -> bytes:
    owned = list(model.parameters())
    pieces = torch.autograd.grad(loss, owned, allow_unused=True, materialize_grads=True)
    return bytes(torch.cat([piece.reshape(-1) for piece in pieces]).numpy())


@pytest.mark.parametrize("loss", [plain, with_penalty])
@pytest.mark.parametrize("make", [Tied, Convolutions, Hooked])
@pytest.mark.parametrize("vectors", ["numpy", "torch"])
def test_a_collected_gradient_has_autograds_bits(
    make: Callable[[], nn.Module], loss: Callable[[nn.Module, tuple[Tensor, Tensor]], Tensor], vectors: str
) -> None:
    torch.manual_seed(1)
    shape = (3, 8, 8) if make is Convolutions else (8,)
    data, own = synthetic(64, shape, 2, seed=0), make()
    workload = ModuleWorkload(lambda: copy.deepcopy(own), data, loss=loss, vectors=vectors)  # type: ignore[arg-type]
    x, batch = workload.place(workload.initial(0)), Batch(0, 1, np.arange(8))
    for _ in range(3):  # into memory that was used before, too
        slope = workload.gradient(x, batch)
        given = (data.train_inputs[batch.indices], data.train_labels[batch.indices])
        module = copy.deepcopy(own).train()
        g = np.asarray(slope.g)
        assert isinstance(slope.g, DeviceVector) == (vectors == "torch")
        assert bytes(g[: workload.parameters]) == expected(module, loss(module, given))
        assert not g[workload.parameters :].any()
        own.load_state_dict(module.state_dict())  # with its running statistics
        g[:] = np.nan


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ParameterList(torch.ones(WIDE, WIDE) for _ in range(20))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.relu(x @ layer) / WIDE
        return x


def most_held(act: Callable[[], object]) -> int:
    """Bytes of torch's memory that are held at once, beside what was there before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        act()
    events = [e for e in profiled.profiler.kineto_results.events() if e.name() == "[memory]"]  # type: ignore[union-attr]
    return int(np.cumsum([e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())]).max())


def test_a_step_in_steady_state_holds_a_layer_and_not_a_model() -> None:
    module, x = Layers(), torch.ones(2, WIDE)
    owned, pieces = list(module.parameters()), layout(module).parameters
    vector = np.zeros(pieces[-1].stop, np.float32)
    way = CollectedGradient(owned, pieces)
    way.of(module(x).sum(), vector)
    assert most_held(lambda: way.of(module(x).sum(), vector)) < vector.nbytes / 5
    assert most_held(lambda: torch.autograd.grad(module(x).sum(), owned)) >= vector.nbytes
