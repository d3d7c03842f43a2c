"""The gradient of a module as one vector: large pieces are copied there while the backward pass goes on.

Autograd makes the gradient of each parameter in new memory. If all of them were kept until the end, a step
would take memory for one more model. A hook of each large parameter copies its gradient to its place in the
vector, so that its memory is free for the next layer's; small ones are joined at the end, which costs fewer
calls. Both give the bits that autograd gives.

A layer may take gradients of its own while the backward pass goes on (a reversible one does, to save memory),
and add them up afterwards. Hooks are called in these passes, too, and must leave them alone: what they would
put into the vector is one term of the gradient, in the place of the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import cast

import torch
from torch import Tensor

from swiftfl.recycled import like
from swiftfl.vector import Vector
from swiftfl.workload.device_vector import DeviceVector
from swiftfl.workload.flat import FlatPiece
from swiftfl.workload.transfer import download

AT_ONCE = 1 << 17
"""Numbers of a parameter from which on its gradient is copied at once: a hook takes as long as copying a few
ten thousand numbers."""


class _Target:
    """Where gradients go during a backward pass; None at all other times, in which hooks do nothing."""

    flat: Tensor | None = None
    graph_task: int | None = None  # which of autograd's passes is ours, beside those within it

    def begin(self, grad: Tensor) -> None:
        """As a hook of the loss: nothing is differentiated before it, by this pass or within it."""
        if self.graph_task is None:
            self.graph_task = torch._C._current_graph_task_id()

    def end(self) -> None:
        self.flat = self.graph_task = None


class CollectedGradient:
    """Takes gradients of these parameters, which lie one after the other in a flat vector."""

    def __init__(self, tensors: Sequence[Tensor], pieces: Sequence[FlatPiece]) -> None:
        self._tensors, self._pieces, self._target = tensors, pieces, _Target()
        self._count = pieces[-1].stop
        self._large = [k for k, piece in enumerate(pieces) if _is_large(piece)]
        for k in self._large:
            tensors[k].register_hook(_copier(self._target, pieces[k]))  # type: ignore[no-untyped-call]
        runs = groupby(range(len(pieces)), key=lambda k: _is_large(pieces[k]))
        small = [list(run) for large, run in runs if not large]
        self._small = [(run, pieces[run[0]].start, pieces[run[-1]].stop) for run in small]  # without gaps

    def of(self, loss: Tensor, x: Vector) -> Vector:
        """The gradient of the loss, where and like the model x is; 0 for whatever in x is no parameter."""
        if isinstance(x, DeviceVector):
            flat = torch.zeros_like(x.tensor)
            self._collect(loss, flat)
            return cast(Vector, DeviceVector(flat))
        g = like(x)
        if loss.device.type == "cpu":
            self._collect(loss, torch.from_numpy(g))
        else:
            there = torch.empty(self._count, dtype=self._tensors[0].dtype, device=self._tensors[0].device)
            self._collect(loss, there)
            download(there, g[: self._count])
        g[self._count :] = 0
        return g

    def _collect(self, loss: Tensor, flat: Tensor) -> None:
        """Put the gradient into the first numbers of `flat`."""
        if self._large and loss.requires_grad:
            self._target.flat = flat
            loss.register_hook(self._target.begin)  # type: ignore[no-untyped-call]
        try:
            grads = torch.autograd.grad(loss, self._tensors, allow_unused=True, materialize_grads=True)
        finally:
            self._target.end()
        for k in self._large:
            piece, grad = self._pieces[k], grads[k]
            # Elsewhere is one that no layer used, or that a hook of the module's own has put in its place.
            if grad.data_ptr() == flat.data_ptr() + flat.element_size() * piece.start:
                if grad.is_contiguous():
                    continue
                grad = grad.clone()  # such a hook has transposed the one that lies here
            flat[piece.start : piece.stop].view(piece.shape).copy_(grad)
        for run, start, stop in self._small:
            torch.cat([grads[k].reshape(-1) for k in run], out=flat[start:stop])


def _is_large(piece: FlatPiece) -> bool:
    return piece.stop - piece.start >= AT_ONCE


def _copier(target: _Target, piece: FlatPiece) -> Callable[[Tensor], Tensor | None]:
    def copy(grad: Tensor | None) -> Tensor | None:
        """What autograd keeps is the copy, so that its own is freed."""
        if target.flat is None or grad is None:
            return None
        if torch._C._current_graph_task_id() != target.graph_task:
            return None
        return target.flat[piece.start : piece.stop].view(piece.shape).copy_(grad)

    return copy
