"""Any torch module and dataset as a workload, behind a flat vector."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from swiftfl.data.augment import Augment
from swiftfl.data.dataset import Dataset
from swiftfl.errors import UserError
from swiftfl.sample import Batch, Slope
from swiftfl.streams import number
from swiftfl.vector import Statistics, Vector
from swiftfl.workload.base import Evaluation
from swiftfl.workload.buffers import Buffers, changing
from swiftfl.workload.choice import Way
from swiftfl.workload.dense import dense_chain
from swiftfl.workload.dropout import Masks
from swiftfl.workload.flat import adopt, flatten, layout, take_over_statistics
from swiftfl.workload.form import ByHand, Form, Mapped
from swiftfl.workload.group import Group
from swiftfl.workload.memory import keep_freed_memory
from swiftfl.workload.metrics import METRICS, evaluate_metrics
from swiftfl.workload.samples import Samples
from swiftfl.workload.stacked import Stacked, cross_entropy_of_each

Loss = Callable[[Tensor, Tensor], Tensor]
_TEST_CHUNK = 512
_TRIAL = 8  # samples of the forward pass that shows which buffers change


class ModuleWorkload:
    """A module (or a factory of modules) trained on a dataset.

    With a factory, `initial(seed)` builds a module from a random state of that seed; a module that is
    given itself starts every run from its own values. `loss(outputs, labels)` is the mean loss of a
    batch. The workload works on its own copy, in training mode but for `evaluate`.

    `gradient` is always plain autograd. `gradients` takes a group of clients together where that is
    faster (see `choice.Choice` for `batching`; "off" is the loop, bit for bit); `choices()` tells what
    it did. `seed` keys what is random inside the module (dropout), by client and counter. `metrics` are
    names of `METRICS` that evaluations tell besides loss and accuracy.
    """

    def __init__(
        self,
        module: nn.Module | Callable[[], nn.Module],
        dataset: Dataset,
        *,
        loss: Loss = functional.cross_entropy,
        augment: Augment | None = None,
        batching: str | Mapping[str, Way] = "auto",
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
        seed: int = 0,
        name: str | None = None,
        metrics: Sequence[str] = (),
    ) -> None:
        if dtype not in (torch.float32, torch.float64):
            raise UserError(f"a workload computes in float32 or float64, not {dtype}")
        keep_freed_memory()
        self.dataset, self.dtype, self.device = dataset, dtype, _usable(device)
        self._given, self._loss, self._seed = module, loss, seed
        self._module = self._build(0)
        self._name = name or type(self._module).__name__.lower()
        self._samples = Samples(dataset, self.device, dtype, augment)
        moving = changing(self._module, self._few_inputs())
        self._layout = layout(self._module, moving)
        self._rate = take_over_statistics(self._module, self._layout)
        self._masks = Masks(self._module, seed, self.device, dtype)
        self._module.to(self.device).train()
        self._flat = torch.empty(self._layout.size, dtype=dtype, device=self.device)
        self._host = self._flat.numpy() if self.device.type == "cpu" else None
        self._tensors = adopt(self._module, self._layout, self._flat)
        self._settled = Buffers(self._module, self._layout, self._flat)
        self._random: bool | None = None  # whether the module draws numbers of its own: seen at first use
        reason = f"its forward pass changes the buffer {moving[0]}, one client at a time" if moving else None
        self._group = Group(self, self._form(), batching, dataset.classes is not None, reason)
        self._metrics = self._checked_metrics(metrics)

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
        self._masks.start(batch)
        inputs, labels = self._samples.train((batch,))
        loss = self._forward(as_convolutions_like(inputs), labels, batch)
        grads = torch.autograd.grad(loss, self._tensors, allow_unused=True, materialize_grads=True)
        self._settled.settle()
        flat = torch.cat([grad.reshape(-1) for grad in grads]).cpu()
        if not self.buffers:
            return Slope(flat.numpy(), loss.item())
        g = np.zeros_like(x)
        g[: self.parameters] = flat.numpy()
        values = self._flat[self.parameters :].cpu().numpy().copy()
        return Slope(g, loss.item(), Statistics(values, self._rate))

    def gradients(self, xs: Sequence[Vector], batches: Sequence[Batch]) -> list[Slope]:
        """Many gradients at once; one by one or batched, whichever is faster."""
        return self._group.gradients(xs, batches)

    def evaluate(self, xs: Sequence[Vector]) -> list[Evaluation]:
        """How good each of these models is on the test set, with running statistics."""
        self._module.eval()
        try:
            with torch.inference_mode():
                found = self._group.evaluate(xs)
                return [self._with_metrics(e, x) for e, x in zip(found, xs, strict=True)]
        except UserError:
            raise
        except (ValueError, RuntimeError, IndexError) as error:
            raise UserError(f"{self.name} fails on the test set: {_first_line(error)}") from error
        finally:
            self._module.train()

    def _with_metrics(self, evaluation: Evaluation, x: Vector) -> Evaluation:
        """Metrics take the outputs of the whole test set, one model at a time."""
        if not self._metrics:
            return evaluation
        test = list(self._samples.test(_TEST_CHUNK))
        outputs = torch.cat([self.outputs(x, inputs) for inputs, _ in test])
        labels = torch.cat([labels for _, labels in test])
        return replace(evaluation, metrics=evaluate_metrics(self._metrics, outputs, labels))

    def _checked_metrics(self, names: Sequence[str]) -> tuple[str, ...]:
        for name in names:
            METRICS[name]  # says which there are
        if names and self.dataset.classes is None:
            raise UserError(f"metric {names[0]!r} needs classes, which this dataset does not have")
        return tuple(names)

    def choices(self) -> dict[str, object]:
        """How gradients were taken: the form of batching or why there is none, the way per group size."""
        return self._group.choices()

    def draws(self, batch: Batch) -> bool:
        """Whether the forward pass draws random numbers of its own, which is seen at its first use."""
        if self._random is None:
            self.gradient(self.initial(0), batch)
        return bool(self._random)

    def scores(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """(models, 2): the summed loss and the number of right answers of (models, samples, ...) outputs."""
        self._check_width(outputs[0])
        if self._loss is functional.cross_entropy and outputs.ndim == 3:
            losses = cross_entropy_of_each(outputs, labels.expand(len(outputs), -1)).sum(dim=1)
        else:
            losses = torch.stack([self._loss(output, labels) * len(labels) for output in outputs])
        if self.dataset.classes is None:
            return torch.stack((losses, torch.zeros_like(losses)), dim=1)
        right = (outputs.max(dim=2).indices == labels).sum(dim=1)  # argmax is slow on columns
        return torch.stack((losses, right.to(losses.dtype)), dim=1)

    def outputs(self, x: Vector, inputs: Tensor) -> Tensor:
        """What the model says to these inputs."""
        self._flat.copy_(torch.from_numpy(x))
        out: Tensor = self._module(as_convolutions_like(inputs))
        self._settled.settle()
        return out

    @property
    def samples(self) -> Samples:
        return self._samples

    def _form(self) -> Form:
        chain = dense_chain(self._module, self._layout)
        plain = self._loss is functional.cross_entropy and self.device.type == "cpu"
        if chain is not None and plain and chain.outputs >= (self.dataset.classes or chain.outputs + 1):
            return ByHand(chain, self._layout, self._samples)
        stacked = Stacked(self._module, self._layout, self._loss)
        return Mapped(self._module, self._layout, self._samples, self._masks, stacked, self._rate)

    def _build(self, seed: int) -> nn.Module:
        """A module of the user's; what its factory draws depends on the seed and on nothing else."""
        if isinstance(self._given, nn.Module):
            return _own_copy(self._given).to(self.dtype)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(number(seed, "initial"))
            return _own_copy(self._given()).to(self.dtype)  # it may give the same module again and again

    def _few_inputs(self) -> Tensor:
        few = Batch(0, 0, np.arange(min(_TRIAL, self.dataset.size)))
        return as_convolutions_like(self._samples.train((few,))[0])

    def _load(self, x: Vector) -> None:
        if x.shape != (self._layout.size,):
            raise UserError(f"{self.name} has vectors of {self._layout.size} numbers, not {x.shape}")
        if self._host is not None:
            np.copyto(self._host, x)
        else:
            self._flat.copy_(torch.from_numpy(x))
        if self._layout.running:
            # The old statistics are weighted by 0, but 0 times infinity of a diverged client is NaN.
            self._flat[self.parameters : self._layout.moving].zero_()

    def _forward(self, inputs: Tensor, labels: Tensor, batch: Batch) -> Tensor:
        if self._random is False:
            return self._loss_of(inputs, labels, batch)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(number(self._seed, "forward", batch.client, batch.counter))
            before = torch.get_rng_state()
            loss = self._loss_of(inputs, labels, batch)
            if self._random is None:
                self._random = not torch.equal(before, torch.get_rng_state())
        return loss

    def _loss_of(self, inputs: Tensor, labels: Tensor, batch: Batch) -> Tensor:
        try:
            outputs = self._module(inputs)
            self._check_width(outputs)
            return self._loss(outputs, labels)
        except UserError:
            raise
        except (ValueError, RuntimeError, IndexError) as error:  # e.g. one sample has no batch statistics
            where = f"client {batch.client}'s batch of {len(labels)} at step {batch.counter}"
            raise UserError(f"{self.name} fails on {where}: {_first_line(error)}") from error

    def _check_width(self, outputs: Tensor) -> None:
        classes = self.dataset.classes
        if self._loss is not functional.cross_entropy or classes is None or outputs.ndim < 2:
            return
        if outputs.shape[1] < classes:
            raise UserError(
                f"{self.name} has {outputs.shape[1]} outputs, but {self.dataset.name} has {classes} classes"
            )


def as_convolutions_like(inputs: Tensor) -> Tensor:
    """Images with their channels last in memory: a processor's convolutions take a third less time."""
    return inputs.contiguous(memory_format=torch.channels_last) if inputs.ndim == 4 else inputs


def _usable(device: str) -> torch.device:
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device {str(device)!r} cannot be used: {_first_line(error)}") from error
    return found


def _own_copy(module: nn.Module) -> nn.Module:
    for kind, named in (("parameter", module.named_parameters()), ("buffer", module.named_buffers())):
        for name, tensor in named:
            if tensor.is_complex():
                raise UserError(f"{kind} {name} is complex; a vector holds real numbers only")
    try:
        return copy.deepcopy(module)
    except (RuntimeError, TypeError) as error:
        raise UserError(f"{type(module).__name__} cannot be copied: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
