"""What outputs are worth: their loss, and how many of their answers are right."""

from __future__ import annotations

import torch
from torch import Tensor

from swiftfl.data.dataset import Dataset
from swiftfl.data.tree import Tree
from swiftfl.errors import UserError
from swiftfl.workload.losses import Objective, class_scores, counted, one_number
from swiftfl.workload.samples import count
from swiftfl.workload.stacked import cross_entropy_of_each


class Scoring:
    """Judges what a model, which `name` names in messages, says to samples of a dataset."""

    def __init__(self, name: str, objective: Objective, dataset: Dataset) -> None:
        self._name, self._objective, self._dataset = name, objective, dataset

    @property
    def right_answers(self) -> bool:
        """Whether an output is an answer that can be right."""
        return self._dataset.classes is not None and self._objective.of_batch is None

    def weight(self, inputs: Tree, labels: Tree | None) -> int:
        """How many losses a mean over these samples is of: the labels that count, or the samples."""
        if self._objective.in_sequences and isinstance(labels, Tensor):
            return int(counted(labels).sum())
        return count(inputs)

    def answers(self, inputs: Tree, labels: Tree | None) -> int:
        """How many answers can be right: the labels that count, whatever the loss is a mean of."""
        if isinstance(labels, Tensor) and labels.ndim > 1:
            return int(counted(labels).sum())
        return count(inputs)

    def scores(self, outputs: Tensor, labels: Tree | None) -> Tensor:
        """(models, 2): the summed loss and the number of right answers of (models, samples, ...) outputs."""
        self.check_width(outputs[0], labels)
        if self._objective.plain and outputs.ndim == 3 and isinstance(labels, Tensor):
            losses = cross_entropy_of_each(outputs, labels.expand(len(outputs), -1)).sum(dim=1)
        else:
            times = self.weight(outputs[0], labels)
            losses = torch.stack([self.loss(output, labels) * times for output in outputs])
        return torch.stack((losses, self._right(outputs, labels).to(losses.dtype)), dim=1)

    def _right(self, outputs: Tensor, labels: Tree | None) -> Tensor:
        """How many answers of each model are right; 0 where that means nothing."""
        if not self.right_answers or not isinstance(labels, Tensor):
            return outputs.new_zeros(len(outputs))
        if labels.ndim == 1 and outputs.ndim == 3:
            return (outputs.max(dim=2).indices == labels).sum(dim=1)  # argmax is slow on columns
        if outputs.ndim != labels.ndim + 2:  # of a criterion of the user's own
            return outputs.new_full((len(outputs),), torch.nan)
        found = [class_scores(output, labels) for output in outputs]
        return torch.stack([(scores.argmax(dim=1) == true).sum() for scores, true in found])

    def loss(self, outputs: object, labels: Tree | None) -> Tensor:
        """The mean loss of what one model said."""
        assert self._objective.criterion is not None
        if self._objective.usual and not isinstance(outputs, Tensor):
            raise UserError(
                f"{self._name} returns a {type(outputs).__name__}, not a tensor: give a loss that knows what "
                "to do with it, loss(outputs, labels) or loss(model, batch)"
            )
        return one_number(self._objective.criterion(outputs, labels), self._objective.name)

    def check_width(self, outputs: object, labels: Tree | None) -> None:
        """Refuse a model that has fewer outputs than there are classes."""
        classes, width = self._dataset.classes, None
        if classes is None or not isinstance(outputs, Tensor) or not isinstance(labels, Tensor):
            return
        if self._objective.plain and outputs.ndim >= 2:
            width = outputs.shape[1]
        elif self._objective.in_sequences:
            width = class_scores(outputs, labels)[0].shape[1]
        if width is not None and width < classes:
            raise UserError(
                f"{self._name} has {width} outputs, but {self._dataset.name} has {classes} classes"
            )
