"""A user's module as one vector: its parameters, its gradient, and its running buffers.

The module stays the user's: numbers are copied out of it and into it, and nothing in it is replaced. In the
vector are the parameters that were trainable when it was made (one that several layers share appears once),
then the running statistics of normalisation layers, then all other floating buffers. Parameters of float16 or
bfloat16 are in it as float32, in which they are sent and averaged; the module holds them rounded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from swiftfl.errors import UserError
from swiftfl.recycled import vector
from swiftfl.vector import Statistics, Vector
from swiftfl.workload.flat import layout

_FLOATING = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


class ModuleVector:
    """Reads and writes a module as a vector of float32, or float64 if any of its numbers is."""

    def __init__(self, module: nn.Module) -> None:
        if not isinstance(module, nn.Module):
            raise UserError(f"model must be a torch.nn.Module, not {type(module).__name__}")
        self.module = module
        others = [name for name, buffer in _buffers(module) if buffer.is_floating_point()]
        self.plan = layout(module, others, _FLOATING)
        named = dict(module.named_parameters())
        self.parameters: list[nn.Parameter] = [named[piece.name] for piece in self.plan.parameters]
        self.size, self.trainable = self.plan.size, self.plan.trainable
        tensors = [*self.parameters, *self._buffers()]
        self._torch_type = torch.float64 if any(t.dtype == torch.float64 for t in tensors) else torch.float32
        self._sizes = [tensor.numel() for tensor in tensors]
        self._norms = [_Norm(module, piece.name) for piece in self.plan.running]
        self._owned = {id(parameter) for parameter in self.parameters}

    @property
    def dtype(self) -> np.dtype[np.floating]:
        return np.dtype(np.float64 if self._torch_type == torch.float64 else np.float32)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of its tensors, in the order of the vector."""
        return [tuple(piece.shape) for piece in self.plan.parameters + self.plan.buffers]

    @property
    def exact(self) -> bool:
        """Whether the module holds every number as it is in the vector."""
        return all(p.dtype in (torch.float32, torch.float64) for p in self.parameters)

    def holds(self, parameter: Tensor) -> bool:
        """Whether this parameter is in the vector."""
        return id(parameter) in self._owned

    def _buffers(self) -> list[Tensor]:
        """As they are now: `module.to(...)` puts others in their place."""
        return [self.module.get_buffer(piece.name) for piece in self.plan.buffers]

    def _tensors(self) -> list[Tensor]:
        return [*self.parameters, *self._buffers()]

    # --- numbers out ---------------------------------------------------------------------------

    def read(self) -> Vector:
        """The module's numbers now, as a new vector."""
        return self._flat([tensor.detach() for tensor in self._tensors()])

    def gradient(self) -> Vector:
        """The gradients that a backward pass has left; 0 where there is none, and for buffers."""
        grads = [_dense(p.grad) if p.grad is not None else torch.zeros_like(p) for p in self.parameters]
        tail = torch.zeros(self.size - self.trainable, dtype=grads[0].dtype, device=grads[0].device)
        return self._flat([grad.detach() for grad in grads] + [tail])

    def _flat(self, tensors: list[Tensor]) -> Vector:
        first = tensors[0]
        if all(t.dtype == first.dtype and t.device == first.device for t in tensors):
            if first.device.type == "cpu" and first.dtype == self._torch_type:
                out = vector(sum(t.numel() for t in tensors), self.dtype)
                torch.cat([t.reshape(-1) for t in tensors], out=torch.from_numpy(out))
                return out
            flat = torch.cat([t.reshape(-1) for t in tensors]).to("cpu", self._torch_type)
        else:
            flat = torch.cat([t.reshape(-1).to("cpu", self._torch_type) for t in tensors])
        found: Vector = flat.numpy()
        return found

    def in_place(self) -> list[Vector] | None:
        """Each parameter as a flat view of itself; None unless all lie in host memory, as in a vector."""
        parameters = [parameter.detach() for parameter in self.parameters]
        if any(p.device.type != "cpu" or p.dtype != self._torch_type for p in parameters):
            return None
        if not all(p.is_contiguous() for p in parameters):
            return None
        return [p.view(-1).numpy() for p in parameters]

    def statistics(self, before: Vector) -> Statistics | None:
        """What the forward passes since `before` was written say of the buffers.

        A normalisation layer of momentum m has turned its running value b into (1-m)^k b + s in k passes:
        the vector follows as it would with an average in the place of b. Other buffers take the value that
        the passes have left.
        """
        if self.size == self.trainable:
            return None
        old = before[self.trainable :]
        new = self._flat([buffer.detach() for buffer in self._buffers()])
        rate = np.ones_like(new)
        for piece, norm in zip(self.plan.running, self._norms, strict=True):
            part = slice(piece.start - self.trainable, piece.stop - self.trainable)
            rate[part] = norm.rate(changed=not np.array_equal(new[part], old[part]))
        values = np.where(rate < 1, old + (new - old) / np.where(rate > 0, rate, 1), new)
        return Statistics(values.astype(self.dtype, copy=False), rate)

    # --- numbers in ----------------------------------------------------------------------------

    @torch.no_grad()
    def load(self, x: Vector) -> None:
        """Put these numbers into the module."""
        for tensor, values in zip(self._tensors(), self._split(x), strict=True):
            tensor.copy_(values.view(tensor.shape))
        for norm in self._norms:
            norm.reset()

    @torch.no_grad()
    def load_gradient(self, g: Vector) -> None:
        """Put a gradient into the module's parameters."""
        for parameter, values in zip(self.parameters, self._split(g), strict=False):
            if parameter.grad is None or parameter.grad.layout != torch.strided:
                parameter.grad = torch.empty_like(parameter)
            parameter.grad.copy_(values.view(parameter.shape))

    def _split(self, x: Vector) -> tuple[Tensor, ...]:
        return torch.split_with_sizes(torch.from_numpy(x).to(self.parameters[0].device), self._sizes)

    # --- what clients must have in common --------------------------------------------------------

    def shape(self) -> str:
        """A digest of the names and shapes in the vector: whoever has another has another model."""
        pieces = [(piece.name, tuple(piece.shape)) for piece in self.plan.parameters + self.plan.buffers]
        return hashlib.sha256(repr((pieces, self.dtype.str)).encode()).hexdigest()[:16]

    def frozen(self) -> str:
        """A digest of the parameters that are not in the vector; empty if there are none."""
        digest, count = hashlib.sha256(), 0
        for name, parameter in self.module.named_parameters():
            if not self.holds(parameter):
                digest.update(name.encode() + parameter.detach().to("cpu", torch.float64).numpy().tobytes())
                count += 1
        return digest.hexdigest()[:16] if count else ""


class _Norm:
    """One running buffer of a normalisation layer: how far a pass moves it, and how many there were."""

    def __init__(self, module: nn.Module, buffer: str) -> None:
        layer = module.get_submodule(buffer.rpartition(".")[0])
        assert isinstance(layer, _NormBase)
        self._layer = layer
        self._passes = self._count()

    def _count(self) -> int | None:
        tracked = self._layer.num_batches_tracked
        return None if tracked is None else int(tracked.item())

    def reset(self) -> None:
        self._passes = self._count()

    def rate(self, changed: bool) -> float:
        """Buffers that have changed without a pass (a checkpoint was loaded) are taken as they are."""
        now, before = self._count(), self._passes
        passes = int(changed) if now is None or before is None else max(0, now - before)
        if changed and not passes:
            return 1.0
        return 1.0 - (1.0 - (self._layer.momentum or 0.0)) ** passes


def _dense(grad: Tensor) -> Tensor:
    return grad if grad.layout == torch.strided else grad.to_dense()


def _buffers(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Every buffer once, but the running statistics and counters of normalisation layers."""
    seen: set[int] = set()
    for prefix, part in module.named_modules():
        for key, buffer in part._buffers.items():
            own = isinstance(part, _NormBase) and key in (
                "running_mean",
                "running_var",
                "num_batches_tracked",
            )
            if buffer is not None and not own and id(buffer) not in seen:
                seen.add(id(buffer))
                yield (f"{prefix}.{key}" if prefix else key), buffer
