"""Metrics of a model on the test set, by name: f(outputs, labels) -> float.

`outputs` and `labels` are those of the whole test set: (samples, classes) scores and (samples,) classes, or
(samples, length, classes) and (samples, length) of sequences, or targets of any shape. A metric of one's own
is such a function, registered with `@METRICS.add("name")` (`evaluation.metrics` asks for it) or given to a
workload.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from swiftfl.data.dataset import Dataset
from swiftfl.errors import UserError
from swiftfl.registry import Registry, absent
from swiftfl.workload.losses import class_scores, counted, mean_squared_error

Metric = Callable[[Any, Any], float]
METRICS: Registry[Metric] = Registry("metric", stand_in=absent)
_OF_CLASSES = ("accuracy", "top5", "f1_macro", "perplexity")
_OF_NUMBERS = ("mse",)


@METRICS.add("accuracy")
def accuracy(outputs: Tensor, labels: Tensor) -> float:
    """The share of labels whose class has the highest score."""
    scores, true = _counted(outputs, labels)
    return float((scores.argmax(dim=1) == true).double().mean())


@METRICS.add("top5")
def top5(outputs: Tensor, labels: Tensor) -> float:
    """The share of labels whose class is among the five highest scores."""
    scores, true = _counted(outputs, labels)
    highest = scores.topk(min(5, scores.shape[1]), dim=1).indices
    return float((highest == true[:, None]).any(dim=1).double().mean())


@METRICS.add("f1_macro")
def f1_macro(outputs: Tensor, labels: Tensor) -> float:
    """The mean over classes of F1 = 2 TP / (2 TP + FP + FN); classes that occur nowhere do not count."""
    scores, true = _counted(outputs, labels)
    classes, said = scores.shape[1], scores.argmax(dim=1)
    both = torch.bincount(said[said == true], minlength=classes).double()
    either = (torch.bincount(said, minlength=classes) + torch.bincount(true, minlength=classes)).double()
    occurs = either > 0
    return float((2 * both[occurs] / either[occurs]).mean())


@METRICS.add("perplexity")
def perplexity(outputs: Tensor, labels: Tensor) -> float:
    """exp of the mean cross-entropy: among how many equally likely classes the model seems to choose."""
    return float(functional.cross_entropy(*_counted(outputs, labels)).double().exp())


@METRICS.add("mse")
def mse(outputs: Tensor, labels: Tensor) -> float:
    """The mean squared error of numbers."""
    return float(mean_squared_error(outputs, labels))


def chosen_metrics(asked: Sequence[str] | Mapping[str, Metric | str], data: Dataset) -> dict[str, Metric]:
    """By name: registered ones, or functions of one's own; what these labels cannot have is refused."""
    if isinstance(asked, str):
        raise UserError(f"metrics must be a list of names or a dict, not the text {asked!r}")
    pairs = asked.items() if isinstance(asked, Mapping) else [(name, name) for name in asked]
    found: dict[str, Metric] = {}
    for name, metric in pairs:
        if isinstance(metric, str):
            _check_labels(metric, data)
            found[name] = METRICS[metric]
        elif isinstance(metric, type) or not callable(metric):
            raise UserError(f"metric {name!r} must be a function of (outputs, labels), not {metric!r}")
        else:
            found[name] = metric
    if found and data.first_labels is None:
        raise UserError(f"metric {next(iter(found))!r} needs labels, which {data.name} does not have")
    return found


def _check_labels(name: str, data: Dataset) -> None:
    METRICS[name]  # says which there are
    if name in _OF_CLASSES and data.classes is None:
        raise UserError(f"metric {name!r} needs classes, which this dataset does not have")
    if name in _OF_NUMBERS and data.classes is not None:
        raise UserError(f"metric {name!r} compares numbers, but the labels of this dataset are classes")


def evaluate_metrics(metrics: Mapping[str, Metric], outputs: Any, labels: Any) -> dict[str, float]:
    """Each of these metrics; one that fails is the user's own, and is named."""
    found = {}
    for name, metric in metrics.items():
        try:
            found[name] = float(metric(outputs, labels))
        except UserError:
            raise
        except Exception as error:  # whatever a metric of one's own may raise
            reason = (str(error).splitlines() or [""])[0]
            raise UserError(f"metric {name!r} failed: {type(error).__name__}: {reason}") from error
    return found


def _counted(outputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """(n, classes) scores and (n,) classes of the labels that count."""
    scores, true = class_scores(outputs, labels)
    if labels.ndim == 1:
        return scores, true
    return scores[counted(true)], true[counted(true)]
