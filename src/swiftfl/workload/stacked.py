"""Any module for a group of clients at once: vmap over stacked parameters.

Only the forward pass is mapped; the backward pass is plain autograd of the sum of the clients' losses
(client i's parameters appear in no other loss, so its part of the gradient is its own). That has
about half the overhead of vmap(grad(...)), which traces both passes.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional

from swiftfl.data.tree import Tree
from swiftfl.vector import Vector
from swiftfl.workload.flat import FlatLayout, FlatPiece
from swiftfl.workload.losses import Criterion, scores_of


class Stacked:
    """Gradients of stacked vectors (clients, size) by mapping the module over its parameters."""

    def __init__(self, module: nn.Module, layout: FlatLayout, loss: Criterion) -> None:
        self._module = module
        self._layout = layout
        self._plain = loss is functional.cross_entropy
        self._losses = vmap(loss)
        self._train = vmap(self._call)
        self._test = vmap(self._call, in_dims=(0, 0, None))

    def gradients(
        self, flat: Tensor, inputs: Tree, labels: Tree, masks: dict[str, Tensor]
    ) -> tuple[Vector, Vector, Vector | None]:
        """(clients, size) gradients, (clients,) losses, (clients, buffers) batch statistics."""
        leaves = {p.name: _view(flat, p).detach().requires_grad_() for p in self._layout.parameters}
        # One contiguous tensor each: batch_norm under vmap writes into a copy of any other, silently.
        running = {p.name: flat.new_zeros((len(flat), *p.shape)) for p in self._layout.buffers}
        outputs, seen = self._train(leaves | masks, running, inputs)
        losses = self._loss_of_each(outputs, labels)
        grads = torch.autograd.grad(
            losses.sum(), list(leaves.values()), allow_unused=True, materialize_grads=True
        )
        g = np.zeros(flat.shape, dtype=flat.cpu().numpy().dtype)
        for piece, grad in zip(self._layout.parameters, grads, strict=True):
            g[:, piece.start : piece.stop] = grad.flatten(1).cpu().numpy()
        values = self._gather(seen) if self._layout.buffers else None
        return g, losses.detach().cpu().numpy(), values

    def outputs(self, flat: Tensor, inputs: Tree) -> Tensor:
        """(clients, samples, classes) of the same inputs for every client."""
        tensors = {p.name: _view(flat, p) for p in self._layout.parameters}
        running = {p.name: _view(flat, p) for p in self._layout.buffers}
        outputs: Tensor = self._test(tensors, running, inputs)[0]
        return outputs

    def _call(
        self, parameters: dict[str, Tensor], running: dict[str, Tensor], inputs: Tree
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """One client: its outputs, and its running buffers as the forward pass left them."""
        arguments = inputs if isinstance(inputs, tuple) else () if isinstance(inputs, dict) else (inputs,)
        named = inputs if isinstance(inputs, dict) else {}
        said = functional_call(self._module, {**parameters, **running}, arguments, named)
        return scores_of(said), running

    def _loss_of_each(self, outputs: Tensor, labels: Tree) -> Tensor:
        if not self._plain or outputs.ndim != 3 or not isinstance(labels, Tensor):
            losses: Tensor = self._losses(outputs, labels)
            return losses
        return cross_entropy_of_each(outputs, labels).mean(dim=1)

    def _gather(self, running: dict[str, Tensor]) -> Vector:
        pieces = [running[piece.name].detach().flatten(1) for piece in self._layout.buffers]
        out: Vector = torch.cat(pieces, dim=1).cpu().numpy()
        return out


def cross_entropy_of_each(outputs: Tensor, labels: Tensor) -> Tensor:
    """(models, samples) losses of (models, samples, classes) outputs."""
    each = functional.cross_entropy(outputs.flatten(0, 1), labels.flatten(), reduction="none")
    return each.view(labels.shape)


def _view(flat: Tensor, piece: FlatPiece) -> Tensor:
    return flat[:, piece.start : piece.stop].view(len(flat), *piece.shape)
