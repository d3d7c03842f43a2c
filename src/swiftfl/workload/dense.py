"""Chains of linear layers by hand: many clients' gradients as a few stacked matrix products.

Logistic regression and MLPs are so small that autograd spends its time on bookkeeping. Their
derivatives fit on a page, and in NumPy a group of clients costs as many calls as one client. With the
samples of a batch as columns:

    forward    h_k = a(W_k h_{k-1} + b_k),    loss = mean cross-entropy of the columns of h_K
    backward   d_K = (softmax(h_K) - onehot) / batch,    dW_k = d_k h_{k-1}^T,    db_k = d_k 1,
               d_{k-1} = (W_k^T d_k) * a'(h_{k-1})

Columns, because the softmax then reduces over an outer axis, which NumPy does three times faster than
over a short inner one; sums over samples are products with 1, five times faster than `sum`. Vectors are
NumPy rows already, so nothing is converted on the way in or out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from torch import nn

from swiftfl.vector import Vector
from swiftfl.workload.flat import FlatLayout, FlatPiece

Array = npt.NDArray[np.floating]


@dataclass(frozen=True)
class DenseLayer:
    """One layer: where its weight and bias lie in a vector, and the activation that follows."""

    weight: FlatPiece
    bias: FlatPiece | None
    activation: type[nn.Module] | None = None


class DenseChain:
    """Forward and backward of a chain for stacked vectors (clients, size)."""

    def __init__(self, layers: list[DenseLayer]) -> None:
        self._layers = layers

    @property
    def outputs(self) -> int:
        return self._layers[-1].weight.shape[0]

    def numbers_per_sample(self) -> int:
        """How many activations one sample leaves behind."""
        return sum(layer.weight.shape[1] + layer.weight.shape[0] for layer in self._layers)

    def forward(self, flat: Vector, inputs: Array) -> list[Array]:
        """All activations, the inputs (clients, features, samples) first and the outputs last."""
        seen = [inputs]
        for layer in self._layers:
            out = np.matmul(_weight(flat, layer), seen[-1])
            if layer.bias is not None:
                out += flat[:, layer.bias.start : layer.bias.stop, None]
            if layer.activation is not None:
                _ACTIVATIONS[layer.activation][0](out)
            seen.append(out)
        return seen

    def gradients(self, flat: Vector, inputs: Array, labels: npt.NDArray[np.int64]) -> tuple[Vector, Array]:
        """(clients, size) gradients and (clients,) losses of (clients, samples, features) inputs."""
        seen = self.forward(flat, inputs.transpose(0, 2, 1))
        losses, d = cross_entropy(seen.pop(), labels)
        ones = _ones(labels.shape[1], flat.dtype)
        g = np.empty_like(flat)
        for k in range(len(self._layers) - 1, -1, -1):
            layer = self._layers[k]
            np.matmul(d, seen[k].transpose(0, 2, 1), out=_weight(g, layer))
            if layer.bias is not None:
                np.matmul(d, ones, out=g[:, layer.bias.start : layer.bias.stop, None])
            if k > 0:
                d = np.matmul(_weight(flat, layer).transpose(0, 2, 1), d)
                before = self._layers[k - 1].activation
                if before is not None:
                    _ACTIVATIONS[before][1](d, seen[k])
        return g, losses


def cross_entropy(outputs: Array, labels: npt.NDArray[np.int64]) -> tuple[Array, Array]:
    """Mean loss of each client, and its derivative; `outputs` (clients, classes, samples) is used up."""
    # Reductions of ufuncs: the methods of arrays go through Python to the same, several times as slowly.
    samples = outputs.shape[2]
    right = labels * samples  # where each sample's own label lies in the flat outputs
    right += _starts(outputs.shape)
    outputs -= np.maximum.reduce(outputs, axis=1, keepdims=True)
    flat = outputs.reshape(-1)
    chosen = flat.take(right)
    d = np.exp(outputs, out=outputs)
    total = np.add.reduce(d, axis=1, keepdims=True)
    lost = np.log(total[:, 0, :])
    lost -= chosen
    losses = np.add.reduce(lost, axis=1)
    losses /= samples
    total *= samples
    d /= total
    flat[right] -= d.dtype.type(1.0 / samples)
    return losses, d


@lru_cache(maxsize=8)
def _starts(shape: tuple[int, int, int]) -> npt.NDArray[np.int64]:
    """Where the first class of each sample lies in flat (clients, classes, samples)."""
    clients, classes, samples = shape
    starts: npt.NDArray[np.int64] = np.arange(clients)[:, None] * (classes * samples) + np.arange(samples)
    return starts


@lru_cache(maxsize=8)
def _ones(samples: int, dtype: np.dtype[np.floating]) -> Array:
    return np.ones((samples, 1), dtype)


def dense_chain(module: nn.Module, layout: FlatLayout) -> DenseChain | None:
    """The module as a chain, or None if it is anything else (or its parameters are shared)."""
    places = {piece.name: piece for piece in layout.parameters}
    layers: list[DenseLayer] = []
    for name, part in _parts(module, ""):
        if any((part._forward_hooks, part._forward_pre_hooks, part._backward_hooks)):
            return None
        if type(part) is nn.Linear:
            weight, bias = places.pop(f"{name}weight", None), places.pop(f"{name}bias", None)
            if weight is None or (bias is None) != (part.bias is None):
                return None
            layers.append(DenseLayer(weight, bias))
        elif type(part) in _ACTIVATIONS and layers and layers[-1].activation is None:
            layers[-1] = DenseLayer(layers[-1].weight, layers[-1].bias, type(part))
        elif not _changes_nothing(part, first=not layers):
            return None
    if not layers or places or layers[-1].activation is not None:
        return None
    return DenseChain(layers)


def _parts(module: nn.Module, prefix: str) -> list[tuple[str, nn.Module]]:
    if type(module) is not nn.Sequential:
        return [(prefix, module)]
    return [part for name, child in module.named_children() for part in _parts(child, f"{prefix}{name}.")]


def _changes_nothing(part: nn.Module, first: bool) -> bool:
    if type(part) is nn.Flatten:
        return first and (part.start_dim, part.end_dim) == (1, -1)
    return type(part) is nn.Identity


def _weight(flat: Vector, layer: DenseLayer) -> Array:
    """(clients, out, in) view of the stacked vectors."""
    piece = layer.weight
    return flat[:, piece.start : piece.stop].reshape(len(flat), *piece.shape)


def _relu(out: Array) -> None:
    np.maximum(out, 0.0, out=out)


def _relu_back(d: Array, h: Array) -> None:
    d *= h > 0.0


def _tanh(out: Array) -> None:
    np.tanh(out, out=out)


def _tanh_back(d: Array, h: Array) -> None:
    d *= 1.0 - h * h


# in place: the activation, and its derivative (from its own value) times d
_ACTIVATIONS: dict[type[nn.Module], tuple[Callable[[Array], None], Callable[[Array, Array], None]]] = {
    nn.ReLU: (_relu, _relu_back),
    nn.Tanh: (_tanh, _tanh_back),
}
