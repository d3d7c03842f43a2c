"""What a client minimises: a criterion of outputs and labels, or a loss of the model and the whole batch.

Without one of the user's own, whole-numbered labels are classes (cross-entropy) and floating ones are targets
(mean squared error).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from swiftfl.data.dataset import IGNORED, Dataset
from swiftfl.data.tree import Tree
from swiftfl.errors import UserError
from swiftfl.registry import Registry, absent

Criterion = Callable[[Any, Any], Tensor]
"""criterion(outputs, labels): the mean loss of a batch."""
Loss = Criterion | Callable[[nn.Module, Any], Tensor]
LOSSES: Registry[Loss] = Registry("loss", stand_in=absent)
"""Losses by name, besides the usual one of the labels; one's own are added with `@LOSSES.add("name")`."""
_MODEL_NAMES, _BATCH_NAMES = ("model", "module", "net"), ("batch",)


@dataclass(frozen=True)
class Objective:
    """One of `criterion` (of outputs and labels) and `of_batch` (of the model and a batch)."""

    name: str
    criterion: Criterion | None = None
    of_batch: Callable[[nn.Module, Any], Tensor] | None = None

    @property
    def plain(self) -> bool:
        """Whether it is the cross-entropy of one class per sample."""
        return self.criterion is functional.cross_entropy

    @property
    def usual(self) -> bool:
        """Whether it is one of this library's own, which take tensors."""
        return self.criterion in (functional.cross_entropy, sequence_cross_entropy, mean_squared_error)

    @property
    def in_sequences(self) -> bool:
        """Whether it is the cross-entropy of several classes per sample."""
        return self.criterion is sequence_cross_entropy


def objective(loss: Loss | None, data: Dataset) -> Objective:
    """What `loss` means for these data; None is the usual loss of their labels."""
    if loss is None:
        return _usual(data)
    if not callable(loss):
        raise UserError(
            f"loss must be a function of (outputs, labels) or of (model, batch), not {type(loss).__name__}"
        )
    if isinstance(loss, type):
        raise UserError(f"loss is the class {loss.__name__}: give an object of it, {loss.__name__}()")
    name = getattr(loss, "__name__", type(loss).__name__)
    _check_two_parameters(loss, name)
    if _takes_the_batch(loss):
        return Objective(f"{name}(model, batch)", of_batch=loss)
    if data.first_labels is None:
        raise UserError(
            f"loss {name} takes (outputs, labels), but {data.name} has no labels; a loss of the whole batch "
            "has parameters called model and batch"
        )
    return Objective(f"{name}(outputs, labels)", loss)


def _usual(data: Dataset) -> Objective:
    labels = data.first_labels
    if labels is None:
        raise UserError(
            f"{data.name} has no labels: name their entry (label=...), or give a loss(model, batch)"
        )
    if not isinstance(labels, Tensor):
        raise UserError(f"{data.name} has labels of several parts: give a loss(outputs, labels)")
    if labels.is_floating_point():
        return Objective("mean squared error", mean_squared_error)
    if labels.ndim > 1:
        return Objective("cross-entropy of each position", sequence_cross_entropy)
    return Objective("cross-entropy", functional.cross_entropy)


def _takes_the_batch(loss: Callable[..., Tensor]) -> bool:
    """By the names of its parameters: the first is called model, or the second batch."""
    described = loss.forward if isinstance(loss, nn.Module) else loss
    try:
        names = list(inspect.signature(described).parameters)
    except (TypeError, ValueError):  # built in, so one of torch's own criteria
        return False
    return names[:1] != [] and (names[0] in _MODEL_NAMES or (len(names) > 1 and names[1] in _BATCH_NAMES))


def _check_two_parameters(loss: Callable[..., Tensor], name: str) -> None:
    described = loss.forward if isinstance(loss, nn.Module) else loss
    try:
        inspect.signature(described).bind(None, None)
    except ValueError:  # built in, so one of torch's own criteria
        return
    except TypeError as error:
        raise UserError(
            f"loss {name} cannot be called with two values, (outputs, labels) or (model, batch): {error}"
        ) from None


def class_scores(outputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """(n, classes) scores and (n,) classes, whatever the shape of a label.

    Scores of the classes are last, (..., classes), as a language model gives them; or second, (samples,
    classes, ...), as torch's own cross-entropy wants them. Where a shape could be either, they are last.
    """
    if outputs.ndim == labels.ndim + 1:
        if outputs.shape[:-1] == labels.shape:
            return outputs.reshape(-1, outputs.shape[-1]), labels.reshape(-1)
        if outputs.shape[0] == labels.shape[0] and outputs.shape[2:] == labels.shape[1:]:
            return outputs.movedim(1, -1).reshape(-1, outputs.shape[1]), labels.reshape(-1)
    raise UserError(
        f"outputs of shape {tuple(outputs.shape)} do not fit classes of shape {tuple(labels.shape)}: "
        f"they should be {(*labels.shape, 'classes')}"
    )


def counted(labels: Tensor) -> Tensor:
    """Which labels count."""
    return labels != IGNORED


def sequence_cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy of all labels that count, as of a text's next tokens."""
    return functional.cross_entropy(*class_scores(outputs, labels), ignore_index=IGNORED)


@LOSSES.add("mse")
def mean_squared_error(outputs: Tensor, labels: Tensor) -> Tensor:
    """Outputs (samples, 1) fit labels (samples,), too; all other shapes must be the same."""
    if outputs.shape != labels.shape:
        if outputs.squeeze(-1).shape != labels.squeeze(-1).shape:
            raise UserError(
                f"outputs of shape {tuple(outputs.shape)} do not fit labels of shape {tuple(labels.shape)}"
            )
        outputs = outputs.reshape(labels.shape)
    return functional.mse_loss(outputs, labels)


LOSSES.register("cross_entropy", functional.cross_entropy)


def one_number(loss: object, name: str) -> Tensor:
    """A loss that can be minimised, or what is wrong with it."""
    if not isinstance(loss, Tensor):
        raise UserError(f"loss {name} returned a {type(loss).__name__}, not a tensor")
    if loss.numel() != 1:
        raise UserError(
            f"loss {name} returned {tuple(loss.shape)} numbers; it must be one, the mean of the batch"
        )
    if torch.is_grad_enabled() and not torch.is_inference_mode_enabled() and not loss.requires_grad:
        raise UserError(f"loss {name} does not depend on the model's parameters")
    return loss if loss.ndim == 0 else loss.reshape(())


def call(module: nn.Module, inputs: Tree) -> Any:
    """A dict as keyword arguments, a tuple as positional ones; of outputs with logits, these."""
    if isinstance(inputs, Tensor):
        return scores_of(module(inputs))
    if isinstance(inputs, dict):
        return scores_of(module(**inputs))
    return scores_of(module(*inputs))


def scores_of(outputs: Any) -> Any:
    """What a model said: `logits` of the outputs of Hugging Face models, all others as they are."""
    return outputs if isinstance(outputs, Tensor) else getattr(outputs, "logits", outputs)
