"""Any torch module and dataset as a workload: plain autograd behind a flat vector."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from swiftfl.data.dataset import Dataset
from swiftfl.errors import UserError
from swiftfl.sample import Batch, Slope
from swiftfl.streams import number
from swiftfl.vector import Statistics, Vector
from swiftfl.workload.base import Evaluation
from swiftfl.workload.flat import adopt, flatten, layout, take_over_statistics

Loss = Callable[[Tensor, Tensor], Tensor]
_EVALUATION_CHUNK = 512


class ModuleWorkload:
    """A module (or a factory of modules) trained on a dataset.

    With a factory, `initial(seed)` builds a module from a random state of that seed; a module that is
    given itself starts every run from its own values. `loss(outputs, labels)` is the mean loss of a
    batch. The workload works on its own copy, in training mode but for `evaluate`.
    """

    def __init__(
        self,
        module: nn.Module | Callable[[], nn.Module],
        dataset: Dataset,
        *,
        loss: Loss = functional.cross_entropy,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
        name: str | None = None,
    ) -> None:
        if dtype not in (torch.float32, torch.float64):
            raise UserError(f"a workload computes in float32 or float64, not {dtype}")
        self._given = module
        self.dataset = dataset
        self.device = torch.device(device)
        self.dtype = dtype
        self._module = self._build(0)
        self._name = name or type(self._module).__name__.lower()
        self._layout = layout(self._module)
        self._loss = loss
        self._data = _Samples(dataset, self.device, dtype)
        self._rate = take_over_statistics(self._module, self._layout)
        self._module.to(self.device).train()
        self._flat = torch.empty(self._layout.size, dtype=dtype, device=self.device)
        self._tensors = adopt(self._module, self._layout, self._flat)
        self._random: bool | None = None  # whether the module draws numbers (dropout): seen at first use

    @property
    def name(self) -> str:
        return self._name

    @property
    def parameters(self) -> int:
        return self._layout.trainable

    @property
    def buffers(self) -> int:
        return self._layout.size - self._layout.trainable

    def initial(self, seed: int) -> Vector:
        """x^0, the same for every client."""
        return flatten(self._build(seed), self._layout)

    def gradient(self, x: Vector, batch: Batch) -> Slope:
        """The mean gradient of the batch at x, by plain autograd."""
        self._load(x)
        inputs, labels = self._data.train(torch.from_numpy(batch.indices))
        loss = self._forward(inputs, labels, batch)
        grads = torch.autograd.grad(loss, self._tensors, allow_unused=True, materialize_grads=True)
        g = np.zeros_like(x)
        flat = torch.cat([grad.reshape(-1) for grad in grads])
        g[: self.parameters] = flat.cpu().numpy()
        return Slope(g, loss.item(), self._statistics())

    def gradients(self, xs: Sequence[Vector], batches: Sequence[Batch]) -> list[Slope]:
        """Many gradients at once; one by one or batched, whichever is faster."""
        return [self.gradient(x, batch) for x, batch in zip(xs, batches, strict=True)]

    def evaluate(self, xs: Sequence[Vector]) -> list[Evaluation]:
        """How good each of these models is on the test set, with running statistics."""
        self._module.eval()
        try:
            with torch.inference_mode():
                return [self._evaluate(x) for x in xs]
        finally:
            self._module.train()

    def _build(self, seed: int) -> nn.Module:
        """A module of the user's; what its factory draws depends on the seed and on nothing else."""
        if isinstance(self._given, nn.Module):
            return copy.deepcopy(self._given).to(self.dtype)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(number(seed, "initial"))
            return self._given().to(self.dtype)

    def _load(self, x: Vector) -> None:
        if x.shape != (self._layout.size,):
            raise UserError(f"{self.name} has vectors of {self._layout.size} numbers, not {x.shape}")
        with torch.no_grad():
            self._flat.copy_(torch.from_numpy(x))
            # The old statistics are weighted by 0, but 0 times infinity of a diverged client is NaN.
            self._flat[self.parameters :].zero_()

    def _forward(self, inputs: Tensor, labels: Tensor, batch: Batch) -> Tensor:
        if self._random is False:
            return self._loss(self._module(inputs), labels)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(number(0, "forward", batch.client, batch.counter))
            before = torch.get_rng_state()
            loss = self._loss(self._module(inputs), labels)
            if self._random is None:
                self._random = not torch.equal(before, torch.get_rng_state())
        return loss

    def _statistics(self) -> Statistics | None:
        if not self.buffers:
            return None
        return Statistics(self._flat[self.parameters :].detach().cpu().numpy().copy(), self._rate)

    def _evaluate(self, x: Vector) -> Evaluation:
        self._flat.copy_(torch.from_numpy(x))
        loss, correct = 0.0, 0
        for inputs, labels in self._data.test(_EVALUATION_CHUNK):
            outputs = self._module(inputs)
            loss += self._loss(outputs, labels).item() * len(labels)
            if self.dataset.classes is not None:
                correct += int((outputs.argmax(dim=1) == labels).sum())
        samples = len(self.dataset.test_labels)
        accuracy = None if self.dataset.classes is None else correct / samples
        return Evaluation(loss / samples, accuracy)


class _Samples:
    """The dataset on the device, gathered by position and made ready for the module."""

    def __init__(self, dataset: Dataset, device: torch.device, dtype: torch.dtype) -> None:
        self._tensors = [
            tensor.to(device)
            for tensor in (
                dataset.train_inputs,
                dataset.train_labels,
                dataset.test_inputs,
                dataset.test_labels,
            )
        ]
        self._dtype = dtype

    def train(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        inputs, labels, _, _ = self._tensors
        indices = indices.to(inputs.device)
        return self._ready(inputs.index_select(0, indices)), labels.index_select(0, indices)

    def test(self, chunk: int) -> Iterator[tuple[Tensor, Tensor]]:
        _, _, inputs, labels = self._tensors
        for start in range(0, len(labels), chunk):
            yield self._ready(inputs[start : start + chunk]), labels[start : start + chunk]

    def _ready(self, inputs: Tensor) -> Tensor:
        if inputs.dtype == torch.uint8:
            return inputs.to(self._dtype).div_(255.0)
        return inputs.to(self._dtype)
