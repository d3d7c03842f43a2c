"""A torch module behind one flat vector: where each parameter and each running buffer lies in it.

In the vector are the trainable parameters, the running mean and variance of normalisation layers and
every other floating buffer that changes in a forward pass (unless `Setup.buffers` says otherwise all are
averaged between clients: parameters averaged without their running statistics would be evaluated with the
statistics of other activations).
Left out are integer buffers (they cannot be averaged; BatchNorm's num_batches_tracked is one), parameters
with requires_grad=False and constant buffers: they are the same for every client.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from swiftfl.errors import UserError
from swiftfl.vector import Vector


@dataclass(frozen=True)
class FlatPiece:
    """One tensor of the module: its name and where it lies in the flat vector."""

    name: str
    shape: torch.Size
    start: int
    stop: int


@dataclass(frozen=True)
class FlatLayout:
    """Parameters, then norm layers' running statistics, then other buffers; each in the module's order."""

    parameters: tuple[FlatPiece, ...]
    running: tuple[FlatPiece, ...]
    others: tuple[FlatPiece, ...] = ()

    @property
    def buffers(self) -> tuple[FlatPiece, ...]:
        return self.running + self.others

    @property
    def trainable(self) -> int:
        return self.parameters[-1].stop

    @property
    def moving(self) -> int:
        """Where the running statistics end and other buffers begin."""
        return (self.running or self.parameters)[-1].stop

    @property
    def size(self) -> int:
        return (self.buffers or self.parameters)[-1].stop


def layout(
    module: nn.Module,
    changing: Sequence[str] = (),
    types: Sequence[torch.dtype] = (torch.float32, torch.float64),
) -> FlatLayout:
    """Where everything goes; a parameter that is shared by several layers appears once.

    `changing` names the buffers beside running statistics that change; the floating ones are carried.
    `types` are those that parameters may have.
    """
    named = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
    if not named:
        raise UserError(f"{type(module).__name__} has no trainable parameters")
    for name, p in named:
        if isinstance(p, nn.parameter.UninitializedParameter):
            raise UserError(f"parameter {name} is lazy: run the module once before you hand it over")
        if p.dtype not in types:
            allowed = " or ".join(str(each).removeprefix("torch.") for each in types)
            raise UserError(f"parameter {name} must be {allowed}, not {p.dtype}")
    parameters = tuple(_pieces(named, 0))
    if not parameters[-1].stop:
        raise UserError(f"{type(module).__name__} has trainable parameters, but not one number in them")
    running = tuple(_pieces(_running(module), parameters[-1].stop))
    buffers = [(name, module.get_buffer(name)) for name in changing]
    floating = [(name, buffer) for name, buffer in buffers if buffer.is_floating_point()]
    return FlatLayout(parameters, running, tuple(_pieces(floating, (running or parameters)[-1].stop)))


def flatten(module: nn.Module, plan: FlatLayout) -> Vector:
    """The module's present values as one new vector."""
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    pieces = [tensors[piece.name].detach().reshape(-1) for piece in plan.parameters + plan.buffers]
    out: Vector = torch.cat(pieces).cpu().numpy()
    return out


def adopt(module: nn.Module, plan: FlatLayout, flat: Tensor) -> list[Tensor]:
    """Make the module live in `flat`: its parameters and buffers become views of it."""
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    flat.copy_(torch.from_numpy(flatten(module, plan)))
    for piece in plan.parameters + plan.buffers:
        tensors[piece.name].data = flat[piece.start : piece.stop].view(piece.shape)
    return [tensors[piece.name] for piece in plan.parameters]


def take_over_statistics(module: nn.Module, plan: FlatLayout) -> Vector | float:
    """Let normalisation layers write the plain batch statistics; gives each buffer's own rate.

    With momentum 1 a training-mode forward leaves exactly the batch's statistics in the buffers; the
    clients do the running average, on their vectors, at the layer's original momentum. Other buffers take
    the value that the forward pass leaves: rate 1.
    """
    rates = np.ones(plan.size - plan.trainable)
    places = {piece.name: piece for piece in plan.buffers}
    for prefix, layer in _normalisations(module):
        for name in ("running_mean", "running_var"):
            piece = places[f"{prefix}{name}"]
            rates[piece.start - plan.trainable : piece.stop - plan.trainable] = layer.momentum
        layer.momentum = 1.0
        layer.num_batches_tracked = None
    if rates.size and bool((rates == rates[0]).all()):
        return float(rates[0])
    double = any(p.dtype == torch.float64 for p in module.parameters())
    return rates if double else rates.astype(np.float32)


def _normalisations(module: nn.Module) -> Iterator[tuple[str, _NormBase]]:
    for name, layer in module.named_modules():
        if isinstance(layer, _NormBase) and layer.track_running_stats and layer.running_mean is not None:
            yield (f"{name}." if name else ""), layer


def _running(module: nn.Module) -> list[tuple[str, Tensor]]:
    found: list[tuple[str, Tensor]] = []
    for prefix, layer in _normalisations(module):
        if layer.momentum is None:
            raise UserError(
                f"layer {prefix[:-1] or type(layer).__name__} has momentum=None (a cumulative average), "
                "which cannot be averaged between clients; give it a number such as 0.1"
            )
        assert layer.running_mean is not None
        assert layer.running_var is not None
        found += [(f"{prefix}running_mean", layer.running_mean), (f"{prefix}running_var", layer.running_var)]
    return found


def _pieces(
    named: list[tuple[str, Tensor]] | list[tuple[str, nn.Parameter]], start: int
) -> Iterator[FlatPiece]:
    for name, tensor in named:
        stop = start + math.prod(tensor.shape)
        yield FlatPiece(name, tensor.shape, start, stop)
        start = stop
