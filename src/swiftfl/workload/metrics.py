"""Metrics of a model on the test set, by name: f(outputs, labels) -> float.

`outputs` are (samples, classes) scores of the whole test set, `labels` (samples,) their classes. A metric of
one's own is such a function, registered with `@METRICS.add("name")`; `evaluation.metrics` asks for it.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional

from swiftfl.errors import UserError
from swiftfl.registry import Registry

Metric = Callable[[Tensor, Tensor], float]
METRICS: Registry[Metric] = Registry("metric")


@METRICS.add("accuracy")
def accuracy(outputs: Tensor, labels: Tensor) -> float:
    """The share of samples whose class has the highest score."""
    return float((outputs.argmax(dim=1) == labels).double().mean())


@METRICS.add("top5")
def top5(outputs: Tensor, labels: Tensor) -> float:
    """The share of samples whose class is among the five highest scores."""
    highest = outputs.topk(min(5, outputs.shape[1]), dim=1).indices
    return float((highest == labels[:, None]).any(dim=1).double().mean())


@METRICS.add("f1_macro")
def f1_macro(outputs: Tensor, labels: Tensor) -> float:
    """The mean over classes of F1 = 2 TP / (2 TP + FP + FN); classes that occur nowhere do not count."""
    classes = outputs.shape[1]
    said = functional.one_hot(outputs.argmax(dim=1), classes)
    true = functional.one_hot(labels, classes)
    both = (said & true).sum(dim=0).double()
    either = (said.sum(dim=0) + true.sum(dim=0)).double()
    occurs = either > 0
    return float((2 * both[occurs] / either[occurs]).mean())


def evaluate_metrics(names: tuple[str, ...], outputs: Tensor, labels: Tensor) -> dict[str, float]:
    """Each of these metrics; one that fails is the user's own, and is named."""
    found = {}
    for name in names:
        try:
            found[name] = float(METRICS[name](outputs, labels))
        except UserError:
            raise
        except Exception as error:  # whatever a metric of one's own may raise
            reason = (str(error).splitlines() or [""])[0]
            raise UserError(f"metric {name!r} failed: {type(error).__name__}: {reason}") from error
    return found
