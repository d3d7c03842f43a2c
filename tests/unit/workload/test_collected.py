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
from torch.utils.checkpoint import checkpoint

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


class Within(torch.autograd.Function):
    """tanh(x w), recomputed in a backward pass within the backward pass, as layers that save memory do."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return torch.tanh(x @ w)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        x, w = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = torch.tanh(x @ w)
        return torch.autograd.grad(y, (x, w), grads)


class Kept(Within):
    """What its inner passes give is needed after the next ones, and after the outer gradient is there."""

    inner: list[Tensor] = []  # noqa: RUF012

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        g, gw = Within.backward(ctx, *grads)
        Kept.inner.append(gw)
        return g, torch.stack(Kept.inner).sum(0)


class Aside(Within):
    """Its inner pass is of a parameter that has had its whole gradient already, and the result is dropped."""

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        x, w = ctx.saved_tensors
        with torch.enable_grad():
            torch.autograd.grad((x.detach() @ w).square().sum(), w)
        return grads[0] @ w.t(), None  # type: ignore[return-value]


class Nested(nn.Module):
    """Such a layer several times with one parameter, which a plain product uses, too."""

    def __init__(self, layer: type[torch.autograd.Function], width: int) -> None:
        super().__init__()
        self.layer = layer
        self.first = nn.Linear(8, width)
        self.middle = nn.Parameter(torch.randn(width, width) / width**0.5)
        self.last = nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for _ in range(3):
            x = self.layer.apply(x, self.middle)  # type: ignore[no-untyped-call]
        out: Tensor = self.last(torch.relu(x @ self.middle))
        return out


class Checkpointed(Tied):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        for _ in range(2):
            x = torch.relu(checkpoint(self.middle, x, use_reentrant=self.reentrant))
        out: Tensor = self.last(x)
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


class Transposed(Tied):
    """Its hook gives back the very numbers that were copied, in another order."""

    def __init__(self) -> None:
        super().__init__()
        self.handle: Any = None

    def forward(self, x: Tensor) -> Tensor:
        if self.handle is not None:
            self.handle.remove()
        self.handle = self.middle.weight.register_hook(lambda g: g.t())
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
@pytest.mark.parametrize("make", [Tied, Convolutions, Hooked, Transposed])
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


@pytest.mark.parametrize("width", [WIDE, 20])
@pytest.mark.parametrize("layer", [Within, Kept, Aside])
@pytest.mark.parametrize("vectors", ["numpy", "torch"])
def test_gradients_that_a_layer_takes_of_its_own_are_left_alone(
    layer: type[torch.autograd.Function], width: int, vectors: Any
) -> None:
    torch.manual_seed(1)
    data, own = synthetic(64, (8,), 2, seed=0), Nested(layer, width)
    workload = ModuleWorkload(lambda: copy.deepcopy(own), data, vectors=vectors)
    x, batch = workload.place(workload.initial(0)), Batch(0, 1, np.arange(8))
    given = (data.train_inputs[batch.indices], data.train_labels[batch.indices])
    for _ in range(2):
        Kept.inner.clear()
        g = np.asarray(workload.gradient(x, batch).g)
        Kept.inner.clear()
        assert bytes(g) == expected(own, plain(own, given))


def test_checkpoints_within_a_model() -> None:
    torch.manual_seed(1)
    data, batch = synthetic(64, (8,), 2, seed=0), Batch(0, 1, np.arange(8))
    own = Checkpointed(reentrant=False)
    workload = ModuleWorkload(lambda: copy.deepcopy(own), data)
    x = workload.initial(0)
    given = (data.train_inputs[batch.indices], data.train_labels[batch.indices])
    assert bytes(workload.gradient(x, batch).g[: workload.parameters]) == expected(own, plain(own, given))
    refused = ModuleWorkload(lambda: Checkpointed(reentrant=True), data)
    with pytest.raises(RuntimeError, match="use_reentrant=False"):  # torch says what to do
        refused.gradient(x, batch)
    assert refused._collected._target.flat is None


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
