"""Local data that shift during training: labels or inputs change from an epoch on, at all clients or at some.

    class_swap       two classes change their names
    label_rotation   class y becomes y + 1, and with `every` one more at each turn
    input_noise      Gaussian noise is added to the inputs, and with `every` more at each turn

What a client sees in its step c is a function of (seed, client, c): the same in every engine, after a
resume and in a replay. Epochs are each client's own. Test data follow: each test sample belongs to a
client, drawn in proportion to the clients' data, and is as that client's data are at the epoch of the
evaluation. So a test is of the mixture of what clients see now.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from swiftfl.data.dataset import Dataset
from swiftfl.errors import UserError
from swiftfl.sample import Batch
from swiftfl.streams import stream

Kind: TypeAlias = Literal["class_swap", "label_rotation", "input_noise"]


@dataclass(frozen=True)
class Shift:
    """One shift: what changes, from which epoch on, at which clients (None: all), and how often again."""

    kind: Kind
    at: float
    every: float | None = None
    clients: tuple[int, ...] | None = None
    classes: tuple[int, int] = (0, 1)
    scale: float = 1.0

    def turns(self, client: int, epoch: float) -> int:
        """How often the shift has happened to a client by an epoch of its own.

        >>> shift = Shift("label_rotation", at=2, every=3)
        >>> [shift.turns(0, epoch) for epoch in (0, 1.9, 2, 4.9, 5, 8)]
        [0, 0, 1, 1, 2, 3]
        """
        if epoch < self.at or (self.clients is not None and client not in self.clients):
            return 0
        return 1 if self.every is None else 1 + math.floor((epoch - self.at) / self.every)

    def relabel(self, labels: Tensor, turns: int, classes: int) -> Tensor:
        if self.kind == "label_rotation":
            return (labels + turns) % classes
        if self.kind == "class_swap" and turns % 2:
            one, other = self.classes
            return torch.where(labels == one, other, torch.where(labels == other, one, labels))
        return labels


class Drift:
    """The shifts of a run: what they make of training batches, and of the test set at some epoch."""

    def __init__(
        self,
        shifts: Sequence[Shift],
        dataset: Dataset,
        sizes: Sequence[int],
        steps_per_epoch: Sequence[int],
        seed: int,
    ) -> None:
        self.shifts, self._steps, self._seed = tuple(shifts), tuple(steps_per_epoch), seed
        self._classes = dataset.classes or 1
        self.epochs: Sequence[float] = [0.0] * len(sizes)  # of each client, at the next evaluation
        for shift in shifts:
            _check(shift, dataset, len(sizes))
        edges = np.cumsum(np.asarray(sizes, dtype=np.float64) / sum(sizes))
        draws = stream(seed, "shift owner").random(len(dataset.test))
        self._owners = np.minimum(np.searchsorted(edges, draws, side="right"), len(sizes) - 1)

    def of_batches(self, inputs: Tensor, labels: Tensor, batches: Sequence[Batch]) -> tuple[Tensor, Tensor]:
        """The samples of these batches, one after the other, as their clients see them."""
        found, start = [], 0
        for batch in batches:
            stop = start + batch.indices.size
            epoch = (batch.counter - 1) / self._steps[batch.client]
            draw = stream(self._seed, "shift", batch.client, batch.counter)
            found.append(self._shifted(inputs[start:stop], labels[start:stop], batch.client, epoch, draw))
            start = stop
        return torch.cat([x for x, _ in found]), torch.cat([y for _, y in found])

    def of_test(self, inputs: Tensor, labels: Tensor, start: int) -> tuple[Tensor, Tensor]:
        """Test samples from a position on, as their owners would see them at the moment of the evaluation."""
        owners: npt.NDArray[np.int64] = self._owners[start : start + len(labels)]
        inputs, labels = inputs.clone(), labels.clone()
        for client in np.unique(owners):
            chosen = torch.from_numpy(np.flatnonzero(owners == client)).to(labels.device)
            draw = stream(self._seed, "shift test", int(client), start)
            x, y = self._shifted(inputs[chosen], labels[chosen], int(client), self.epochs[client], draw)
            inputs[chosen], labels[chosen] = x, y
        return inputs, labels

    def _shifted(
        self, inputs: Tensor, labels: Tensor, client: int, epoch: float, draw: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        for shift in self.shifts:
            turns = shift.turns(client, epoch)
            if turns and shift.kind == "input_noise":
                noise = torch.from_numpy(draw.standard_normal(tuple(inputs.shape), dtype=np.float32))
                inputs = inputs + turns * shift.scale * noise.to(inputs.device, inputs.dtype)
            elif turns:
                labels = shift.relabel(labels, turns, self._classes)
        return inputs, labels


def _check(shift: Shift, dataset: Dataset, clients: int) -> None:
    outside = [client for client in shift.clients or () if not 0 <= client < clients]
    if outside:
        raise UserError(f"data.shift: there is no client {outside[0]} among {clients}")
    if not isinstance(dataset.first_inputs, Tensor):
        raise UserError(f"data.shift: the inputs of {dataset.name} are not one tensor")
    reason = dataset.why_no_classes() if dataset.classes is not None else "there are no classes"
    if reason is not None:
        raise UserError(f"data.shift needs classes, but in {dataset.name} {reason}")
    if shift.kind == "class_swap" and not all(0 <= one < (dataset.classes or 0) for one in shift.classes):
        raise UserError(f"data.shift: classes {shift.classes} are not in [0, {dataset.classes})")
    whole = not (dataset.first_inputs.is_floating_point() or dataset.first_inputs.dtype == torch.uint8)
    if shift.kind == "input_noise" and whole:
        raise UserError(
            f"data.shift: input_noise needs numbers or pictures, not the inputs of {dataset.name}"
        )
