"""The two ways to take a group's gradients together: chains by hand, everything else by vmap.

A form works in chunks whose models, gradients and activations fit the processor's cache together;
larger groups cost as much per client as one chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from swiftfl.data.tree import Tree, map_tree
from swiftfl.sample import Batch, Slope
from swiftfl.vector import Statistics, Vector
from swiftfl.workload.dense import DenseChain
from swiftfl.workload.dropout import Call, Masks
from swiftfl.workload.flat import FlatLayout
from swiftfl.workload.losses import call
from swiftfl.workload.samples import Samples
from swiftfl.workload.stacked import Stacked

_CACHE = 4 << 20  # bytes: a core's fair share of the last-level cache
_TOO_LARGE = 2 << 20  # bytes per client: beyond, a CPU is busy with arithmetic, and batching saves nothing
_TOO_LARGE_ELSEWHERE = 64 << 20  # on other devices: beyond, batching only fills memory
_LARGEST_CHUNK = 256
_BY_HAND, _CACHE_BY_HAND = 128, 8 << 20
"""Clients at a time, and bytes: each chunk has its price, so that half of either makes a step dearer (a tenth
where it was measured), and more saves little. The bits are the same."""


class Form(Protocol):
    """A way to handle many models at once."""

    @property
    def name(self) -> str: ...

    @property
    def bar(self) -> float:
        """The speed-up over the loop from which this form is taken."""

    @property
    def bounded(self) -> bool:
        """Whether its chunks bound the memory of any model, however large."""

    @property
    def separable(self) -> bool:
        """Whether a client's gradient has the same bits whoever else is in its chunk."""

    def chunk(self, batch: Batch) -> int:
        """How many clients with batches like this one to handle at a time."""

    def evaluation_chunk(self, samples: int) -> int:
        """How many models to evaluate at a time on so many samples."""

    def too_large(self, batch: Batch) -> str | None:
        """Why batching cannot pay for this model, if its size says so."""

    def gradients(self, xs: Sequence[Vector], batches: Sequence[Batch]) -> list[Slope]:
        """The gradients of one chunk; all its batches have the same size."""

    def outputs(self, xs: Sequence[Vector], inputs: Tree) -> Tensor:
        """(models, samples, ...) outputs of these models for the same inputs, in evaluation mode."""


class ByHand:
    """Linear layers with written-out derivatives: ahead of autograd even for a group of one."""

    name = "by hand"
    bar = 0.8
    bounded = True
    separable = True  # stacked products are one product per client, and sums go over its own numbers only

    def __init__(self, chain: DenseChain, layout: FlatLayout, samples: Samples) -> None:
        self._chain, self._layout, self._samples = chain, layout, samples

    def chunk(self, batch: Batch) -> int:
        numbers = 3 * self._layout.size + 2 * batch.indices.size * self._chain.numbers_per_sample()
        return min(_BY_HAND, _chunk(4 * numbers, _CACHE_BY_HAND))

    def evaluation_chunk(self, samples: int) -> int:
        return _chunk(4 * (self._layout.size + samples * self._chain.numbers_per_sample()))

    def too_large(self, batch: Batch) -> str | None:
        return None  # at worst it is as fast as the loop, whose products are the same

    def gradients(self, xs: Sequence[Vector], batches: Sequence[Batch]) -> list[Slope]:
        inputs, labels = self._samples.train(batches)
        assert isinstance(inputs, Tensor)
        assert isinstance(labels, Tensor)
        shape = len(xs), batches[0].indices.size
        with np.errstate(all="ignore"):  # a client that diverges gets NaN, as from torch, and no warning
            g, losses = self._chain.gradients(
                stack(xs), inputs.numpy().reshape(*shape, -1), labels.numpy().reshape(shape)
            )
        return list(map(Slope, g, losses.tolist()))

    def outputs(self, xs: Sequence[Vector], inputs: Tree) -> Tensor:
        assert isinstance(inputs, Tensor)
        columns = inputs.flatten(1).numpy().T[None]
        with np.errstate(all="ignore"):
            return torch.from_numpy(self._chain.forward(stack(xs), columns)[-1]).transpose(1, 2)


class Mapped:
    """Any other module, through vmap; ahead of the loop for some models and group sizes only."""

    name = "vmap"
    bar = 1.15
    bounded = False
    separable = False

    def __init__(
        self,
        module: nn.Module,
        layout: FlatLayout,
        samples: Samples,
        masks: Masks,
        stacked: Stacked,
        rate: Vector | float,
    ) -> None:
        self._module, self._layout, self._samples = module, layout, samples
        self._masks, self._stacked, self._rate = masks, stacked, rate
        self._bytes: dict[int, int] = {}  # what a client needs, and its dropout calls, by batch size
        self._calls: dict[int, list[Call]] = {}

    def chunk(self, batch: Batch) -> int:
        size = batch.indices.size
        if size not in self._bytes:
            self._masks.start(batch)
            saved = _saved_bytes(self._module, self._samples.train([batch])[0])
            self._bytes[size] = saved + 3 * 4 * self._layout.size
            self._calls[size] = self._masks.calls
        return max(8, _chunk(self._bytes[size]))

    def evaluation_chunk(self, samples: int) -> int:
        return 8  # samples are many here, so that a few models fill the cache

    def too_large(self, batch: Batch) -> str | None:
        self.chunk(batch)
        used = self._bytes[batch.indices.size]
        limit = _TOO_LARGE if self._samples.device.type == "cpu" else _TOO_LARGE_ELSEWHERE
        if used <= limit:
            return None
        return f"a gradient works on {used / 2**20:.0f} MB, so that there is no overhead to save"

    def gradients(self, xs: Sequence[Vector], batches: Sequence[Batch]) -> list[Slope]:
        inputs, labels = self._samples.train(batches)
        shape = len(xs), batches[0].indices.size
        assert labels is not None
        flat = torch.from_numpy(stack(xs)).to(self._samples.device)
        self.chunk(batches[0])  # has seen a batch of this size
        masks = self._masks.stacked(self._calls[shape[1]], batches)

        def by_client(tensor: Tensor) -> Tensor:
            return tensor.view(*shape, *tensor.shape[1:])

        g, losses, values = self._stacked.gradients(
            flat, map_tree(by_client, inputs), map_tree(by_client, labels), masks
        )
        if values is None:
            return list(map(Slope, g, losses.tolist()))
        found = [Statistics(row, self._rate) for row in values]
        return list(map(Slope, g, losses.tolist(), found))

    def outputs(self, xs: Sequence[Vector], inputs: Tree) -> Tensor:
        return self._stacked.outputs(torch.from_numpy(stack(xs)).to(self._samples.device), inputs)


def _chunk(bytes_per_client: int, cache: int = _CACHE) -> int:
    """How many clients fit the cache together."""
    return max(1, min(_LARGEST_CHUNK, cache // bytes_per_client))


def stack(xs: Sequence[Vector]) -> Vector:
    """Rows into one matrix; concatenating is two to three times faster than np.stack."""
    return np.concatenate(xs).reshape(len(xs), -1)


def _saved_bytes(module: nn.Module, inputs: Tree) -> int:
    """What a forward pass keeps for the backward pass."""
    total = 0

    def count(tensor: Tensor) -> Tensor:
        nonlocal total
        total += tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        call(module, inputs)
    return total
