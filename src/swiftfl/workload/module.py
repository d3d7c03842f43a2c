"""Any torch module and dataset as a workload, behind a flat vector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from swiftfl.data.augment import Augment
from swiftfl.data.dataset import Dataset
from swiftfl.data.shift import Drift
from swiftfl.data.tree import Tree, join
from swiftfl.errors import UserError, in_one_line
from swiftfl.kernels import copy
from swiftfl.memory import require_memory
from swiftfl.sample import Batch, Slope
from swiftfl.streams import number
from swiftfl.vector import Statistics, Vector
from swiftfl.workload import generators
from swiftfl.workload.base import Evaluation, GradientPiece
from swiftfl.workload.buffers import Buffers, changing
from swiftfl.workload.choice import Way
from swiftfl.workload.collected import CollectedGradient
from swiftfl.workload.dense import dense_chain
from swiftfl.workload.device_vector import DeviceVector, on_device
from swiftfl.workload.dropout import Masks
from swiftfl.workload.flat import adopt, flatten, layout, take_over_statistics
from swiftfl.workload.form import ByHand, Form, Mapped
from swiftfl.workload.group import Group
from swiftfl.workload.losses import Loss, call, objective, one_number
from swiftfl.workload.memory import keep_freed_memory
from swiftfl.workload.metrics import Metric, chosen_metrics, evaluate_metrics
from swiftfl.workload.placement import usable
from swiftfl.workload.recorded_model import MakeModel, RecordedModel, build_module
from swiftfl.workload.samples import Samples, becomes_floating, count, test_chunk
from swiftfl.workload.scoring import Scoring
from swiftfl.workload.stacked import Stacked
from swiftfl.workload.transfer import upload

Vectors: TypeAlias = Literal["auto", "numpy", "torch"]
"""What models are: NumPy arrays, tensors on the device, or the latter where that is not the cpu."""
_OF_USERS = (ValueError, RuntimeError, IndexError, TypeError, KeyError, AttributeError)
"""What a module or a loss may raise on data that it does not fit."""
_TRIAL = 8  # samples of the forward pass that shows which buffers change


class ModuleWorkload:
    """A module (or a factory of modules) trained on a dataset.

    With a factory, `initial(seed)` builds a module from a random state of that seed; a module that is
    given itself starts every run from its own values. `loss(outputs, labels)` or `loss(model, batch)` is the
    mean loss of a batch; None is the usual one of the labels (`workload.losses`). Inputs that are a dict are
    the module's keyword arguments, a tuple its positional ones. The workload works on its own copy, in
    training mode but for `evaluate`.

    `gradient` is always plain autograd. `gradients` takes a group of clients together where that is
    faster (see `choice.Choice` for `batching`; "off" is the loop, bit for bit); `choices()` tells what
    it did. `seed` keys what is random inside the module (dropout), by client and counter. `metrics` are
    names of `METRICS` that evaluations tell besides loss and accuracy, or functions of one's own by name.
    """

    def __init__(
        self,
        module: MakeModel,
        dataset: Dataset,
        *,
        loss: Loss | None = None,
        augment: Augment | None = None,
        drift: Drift | None = None,
        batching: str | Mapping[str, Way] = "auto",
        device: str = "cpu",
        vectors: Vectors = "auto",
        dtype: torch.dtype = torch.float32,
        seed: int = 0,
        name: str | None = None,
        metrics: Sequence[str] | Mapping[str, Metric | str] = (),
    ) -> None:
        if dtype not in (torch.float32, torch.float64):
            raise UserError(f"a workload computes in float32 or float64, not {dtype}")
        keep_freed_memory()
        self.dataset, self.dtype, self.device = dataset, dtype, usable(device)
        self._given, self._objective, self._seed = module, objective(loss, dataset), seed
        self._module = build_module(self._given, 0, self.dtype)
        self._name = name or type(self._module).__name__.lower()
        self._samples = Samples(dataset, self.device, dtype, augment, drift)
        moving = changing(self._module, self._few_inputs(), self.device)
        self._layout = layout(self._module, moving)
        self._rate = take_over_statistics(self._module, self._layout)
        self._masks = Masks(self._module, seed, self.device, dtype)
        self._module.to(self.device).train()
        self._flat = torch.empty(self._layout.size, dtype=dtype, device=self.device)
        self._host = self._flat.numpy() if self.device.type == "cpu" else None
        tensors = adopt(self._module, self._layout, self._flat)
        self._collected = CollectedGradient(tensors, self._layout.parameters)
        self.keeps_models = vectors == "torch" or (vectors == "auto" and self.device.type != "cpu")
        self._rate_there = self._rate if isinstance(self._rate, float) else on_device(self._rate, self.device)
        self._loaded: Vector | None = None  # the model that an evaluation has put into the module
        self._settled = Buffers(self._module, self._layout, self._flat)
        self._random: bool | None = None  # whether the module draws numbers of its own: seen at first use
        self._draws_in_evaluations: bool | None = None  # and whether it, a loss or a metric does there
        self._unkeyed: list[str] = []  # whose generators it draws from that nobody seeds by client and step
        self._scoring = Scoring(self._name, self._objective, dataset)
        self._group = Group(self, self._form(), batching, self._scoring, self._one_by_one(moving))
        self._metrics = chosen_metrics(metrics, dataset)

    @property
    def name(self) -> str:
        return self._name

    @property
    def parameters(self) -> int:
        return self._layout.trainable

    @property
    def buffers(self) -> int:
        return self._layout.size - self._layout.trainable

    def recorded(self) -> RecordedModel:
        """How a vector becomes a module again."""
        plan, one = self._layout, self.dataset.first_inputs
        return RecordedModel(
            self.name,
            {piece.name: tuple(piece.shape) for piece in plan.parameters + plan.buffers},
            plan.trainable,
            tuple(one.shape[1:]) if isinstance(one, Tensor) else None,
            self.dataset.classes,
            _name_of(self.dtype),
            _name_of(one.dtype if isinstance(one, Tensor) and not becomes_floating(one) else self.dtype),
        )

    def initial(self, seed: int) -> Vector:
        """x^0, the same for every client."""
        return flatten(build_module(self._given, seed, self.dtype), self._layout)

    def place(self, x: Vector) -> Vector:
        """The vector where this workload computes: a tensor on its device, if models live there."""
        if not self.keeps_models or not isinstance(x, np.ndarray):
            return x
        return on_device(x, self.device)

    def gradient(self, x: Vector, batch: Batch) -> Slope:
        """The mean gradient of the batch at x, by plain autograd; on the device if x is there."""
        self._load(x)
        self._masks.start(batch)
        inputs, labels = self._samples.train((batch,))
        loss = self._forward(inputs, labels, batch)
        g = self._collected.of(loss, x)
        self._settled.settle()
        if not self.buffers:
            return Slope(g, loss.item())
        tail = self._flat[self.parameters :]
        if isinstance(x, DeviceVector):
            values = cast(Vector, DeviceVector(tail.clone()))
            return Slope(g, loss.item(), Statistics(values, self._rate_there))
        return Slope(g, loss.item(), Statistics(tail.cpu().numpy().copy(), self._rate))

    def gradients(self, xs: Sequence[Vector], batches: Sequence[Batch]) -> list[Slope]:
        return self._group.gradients(xs, batches)

    def pieces(self, xs: Sequence[Vector], batches: Sequence[Batch]) -> list[GradientPiece]:
        return self._group.pieces(xs, batches)

    def piece(self, way: str, xs: Sequence[Vector], batches: Sequence[Batch]) -> list[Slope]:
        return self._group.piece(way, xs, batches)

    @property
    def why_one_process(self) -> str | None:
        if self.device.type != "cpu":
            return f"{self.device.type} devices cannot be forked"
        if self.keeps_models:
            return "its models are tensors"
        if not self._samples.in_memory:
            return "its samples are read as they are needed, and forks would share the files that are open"
        if self._unkeyed:
            return f"its forward pass draws from {self._unkeyed[0]}'s global generator of random numbers"
        return None

    @property
    def separable(self) -> bool:
        return self._group.separable

    @property
    def rate(self) -> Vector | float:
        """At which running buffers move towards the statistics of a batch."""
        return self._rate

    def follow(self, epochs: Sequence[float]) -> None:
        """Where data shift: evaluations are of test data as they are at these epochs of the clients."""
        self._samples.follow(epochs)

    def evaluates_apart(self, models: int) -> bool:
        """Whether models may be evaluated in any process: nothing is drawn, and test data do not shift."""
        draws = self._random is not False or self._draws_in_evaluations is not False
        return not draws and not self._samples.drifts and self._group.one_by_one(models)

    def evaluate(self, xs: Sequence[Vector]) -> list[Evaluation]:
        """How good each of these models is on the test set, with running statistics."""
        if self._draws_in_evaluations is not None or not xs:
            return self._evaluate(xs)
        before = generators.states(self.device), generators.unkeyed_states()
        found = self._evaluate(xs)
        same = all(map(torch.equal, before[0], generators.states(self.device)))
        self._draws_in_evaluations = not same or before[1] != generators.unkeyed_states()
        return found

    def _evaluate(self, xs: Sequence[Vector]) -> list[Evaluation]:
        self._module.eval()
        self._loaded = None
        try:
            with torch.inference_mode():
                if self._one_after_the_other(len(xs)):  # so that each is loaded once
                    return [self._with_metrics(self._group.evaluate([x])[0], x) for x in xs]
                found = self._group.evaluate(xs)
                return [self._with_metrics(e, x) for e, x in zip(found, xs, strict=True)]
        except UserError:
            raise
        except _OF_USERS as error:
            raise UserError(f"{self.name} fails on the test set: {in_one_line(error)}") from error
        finally:
            self._module.train()
            self._loaded = None

    def _one_after_the_other(self, models: int) -> bool:
        """Whether each model goes through the whole test set before the next one is loaded.

        Not where test data would have to be read, shifted or scaled anew for each, which takes longer than to
        load a model from host memory; nor where the module draws numbers, which would then be others.
        """
        if self.keeps_models:
            return True
        return self._samples.test_at_hand and not self._random and self._group.by_model(models)

    def _with_metrics(self, evaluation: Evaluation, x: Vector) -> Evaluation:
        """Metrics take the outputs of the whole test set, one model at a time."""
        if not self._metrics:
            return evaluation
        outputs: list[Tensor] = []
        labels: list[Tree] = []
        for inputs, wanted in self._samples.test(self.evaluation_chunk):
            said = self.outputs(x, inputs)
            if not isinstance(said, Tensor) or wanted is None:
                raise UserError(f"metrics need outputs that are one tensor, not {type(said).__name__}")
            if not outputs:
                pieces = -(-len(self.dataset.test) // self.evaluation_chunk)
                size = said.numel() * said.element_size() * pieces
                require_memory("metrics take all outputs of the test set, which", size)
            outputs.append(said)
            labels.append(wanted)
        found = evaluate_metrics(self._metrics, torch.cat(outputs), join(torch.cat, labels))
        return replace(evaluation, metrics=found)

    def choices(self) -> dict[str, object]:
        """How gradients were taken: the form of batching or why there is none, the way per group size."""
        return {**self._group.choices(), "loss": self._objective.name}

    def draws(self, batch: Batch) -> bool:
        """Whether the forward pass draws random numbers of its own, which is seen at its first use."""
        if self._random is None:
            self.gradient(self.initial(0), batch)
        return bool(self._random)

    def score(self, x: Vector, inputs: Tree, labels: Tree | None) -> Tensor:
        """(1, 2): the summed loss of these samples, and the number of right answers."""
        if self._objective.of_batch is None:
            outputs = self.outputs(x, inputs)
            if isinstance(outputs, Tensor):
                return self._scoring.scores(outputs[None], labels)
            loss = self._scoring.loss(outputs, labels)
        else:
            self._put(x)
            loss = self._loss_of_batch(inputs, labels)
            self._settled.settle()
        return torch.stack((loss * count(inputs), torch.zeros_like(loss)))[None]

    def outputs(self, x: Vector, inputs: Tree) -> Any:
        """What the model says to these inputs."""
        self._put(x)
        out = call(self._module, as_convolutions_like(inputs))
        self._settled.settle()
        return out

    @property
    def evaluation_chunk(self) -> int:
        """How many test samples are looked at together: fewer where each has many labels."""
        return test_chunk(self.device, self.dataset.first_labels)

    @property
    def samples(self) -> Samples:
        return self._samples

    def _one_by_one(self, moving: Sequence[str]) -> str | None:
        """Why gradients cannot be taken together, where that is known beforehand."""
        if self.keeps_models:
            return "its models are tensors on a device"
        if moving:
            return f"its forward pass changes the buffer {moving[0]}, one client at a time"
        if self._objective.of_batch is not None:
            return "its loss takes the model itself, one client at a time"
        return None

    def _form(self) -> Form:
        chain = dense_chain(self._module, self._layout)
        classes = self.dataset.classes if self.dataset.why_no_classes() is None else None
        plain = self._objective.plain and self.device.type == "cpu" and self._samples.floating
        if chain is not None and plain and classes is not None and chain.outputs >= classes:
            return ByHand(chain, self._layout, self._samples)
        criterion = self._objective.criterion or functional.cross_entropy  # the latter is never asked
        stacked = Stacked(self._module, self._layout, criterion)
        return Mapped(self._module, self._layout, self._samples, self._masks, stacked, self._rate)

    def _few_inputs(self) -> Tree:
        few = Batch(0, 0, np.arange(min(_TRIAL, self.dataset.size)))
        return as_convolutions_like(self._samples.train((few,))[0])

    def _load(self, x: Vector) -> None:
        if x.shape != (self._layout.size,):
            raise UserError(f"{self.name} has vectors of {self._layout.size} numbers, not {x.shape}")
        if isinstance(x, DeviceVector):
            self._flat.copy_(x.tensor)
        elif self._host is not None:
            copy(self._host, x)
        else:
            upload(x, self._flat)
        if self._layout.running:
            # The old statistics are weighted by 0, but 0 times infinity of a diverged client is NaN.
            self._flat[self.parameters : self._layout.moving].zero_()

    def _put(self, x: Vector) -> None:
        """Put a model into the module, to be evaluated; once, however many pieces the test set comes in."""
        if x is not self._loaded:
            if isinstance(x, DeviceVector):
                self._flat.copy_(x.tensor)
            else:
                upload(x, self._flat)
            self._loaded = x

    def _forward(self, inputs: Tree, labels: Tree | None, batch: Batch) -> Tensor:
        if self._random is False:
            return self._loss_of(inputs, labels, batch)
        with torch.random.fork_rng(devices=generators.devices(self.device)):
            torch.manual_seed(number(self._seed, "forward", batch.client, batch.counter))
            before = generators.states(self.device)
            others = generators.unkeyed_states() if self._random is None else {}
            loss = self._loss_of(inputs, labels, batch)
            if self._random is None:
                self._random = not all(map(torch.equal, before, generators.states(self.device)))
                now = generators.unkeyed_states()
                self._unkeyed = [name for name, state in others.items() if state != now[name]]
        return loss

    def _loss_of(self, inputs: Tree, labels: Tree | None, batch: Batch) -> Tensor:
        try:
            if self._objective.of_batch is not None:
                return self._loss_of_batch(inputs, labels)
            outputs = call(self._module, as_convolutions_like(inputs))
            self._scoring.check_width(outputs, labels)
            return self._scoring.loss(outputs, labels)
        except UserError:
            raise
        except _OF_USERS as error:  # e.g. one sample has no batch statistics
            where = f"client {batch.client}'s batch of {count(inputs)} at step {batch.counter}"
            raise UserError(f"{self.name} fails on {where}: {in_one_line(error)}") from error

    def _loss_of_batch(self, inputs: Tree, labels: Tree | None) -> Tensor:
        assert self._objective.of_batch is not None
        whole = self.dataset.roles.whole(inputs, labels)
        return one_number(self._objective.of_batch(self._module, whole), self._objective.name)


def as_convolutions_like(inputs: Tree) -> Tree:
    """Images with their channels last in memory: a processor's convolutions take a third less time."""
    if not isinstance(inputs, Tensor) or inputs.ndim != 4:
        return inputs
    return inputs.contiguous(memory_format=torch.channels_last)


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
