"""What is learnt and how, as `swiftfl.train` takes it: model, data, loss, metrics, optimizer, algorithm."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping

from torch import nn

from swiftfl.algorithm import Algorithm
from swiftfl.algorithms import ALGORITHMS, Context
from swiftfl.api.chosen import Arguments, choose_named
from swiftfl.api.words import name_of, shown
from swiftfl.data import as_dataset
from swiftfl.data.dataset import Dataset
from swiftfl.data.registry import DATASETS
from swiftfl.errors import UserError
from swiftfl.optimizers import SGD, Description
from swiftfl.verbs import Verb
from swiftfl.workload.losses import LOSSES, Loss
from swiftfl.workload.metrics import METRICS, Metric
from swiftfl.workload.models import MODELS
from swiftfl.workload.recorded_model import MakeModel


def read_model(found: Arguments, model: object) -> MakeModel | None:
    if isinstance(model, str):
        choose_named(found, "model", model, MODELS, "model.name", "model.options")
        return None
    if isinstance(model, nn.Module):
        return model
    if isinstance(model, type) and not issubclass(model, nn.Module):
        raise UserError(f"model is the class {model.__name__}, which is not a torch.nn.Module")
    if not callable(model):
        raise UserError(
            f"model must be a torch.nn.Module, a function that makes one, or a name, not {shown(model)}"
        )
    try:
        inspect.signature(model).bind()
    except TypeError as error:
        kind = "the class" if isinstance(model, type) else "a function"
        raise UserError(
            f"model is {kind} {name_of(model)}, which needs arguments ({error}): "
            "give an object, or a function without arguments such as lambda: Net(10)"
        ) from None
    except ValueError:  # built in, and does not tell
        pass
    make: Callable[[], nn.Module] = model
    return make


def read_data(
    found: Arguments, train: object, test: object, groups: object, label: str | None, clients: int | None
) -> Dataset | None:
    if isinstance(train, str):
        for argument, value in (("test", test), ("groups", groups), ("label", label)):
            if value is not None:
                raise UserError(
                    f"train is the name {train!r}, which has everything with it: leave {argument} out"
                )
        choose_named(found, "train", train, DATASETS, "data.dataset", "data.options")
        return None
    if train is None:
        raise UserError("train must be the training data, or the name of a dataset, not None")
    split = isinstance(train, list) or (callable(train) and not hasattr(train, "__getitem__"))
    return as_dataset(train, test, clients=clients if split else None, groups=groups, label=label)


def read_loss(found: Arguments, loss: object) -> Loss | None:
    if isinstance(loss, str):
        LOSSES[loss]  # says which there are
        found.choose("loss", {"model.loss": loss})
        return None
    if loss is not None and not callable(loss):
        raise UserError(
            f"loss must be a function of (outputs, labels) or of (model, batch), or a name, not {shown(loss)}"
        )
    return loss


def read_metrics(found: Arguments, metrics: object) -> dict[str, Metric]:
    if isinstance(metrics, str) or not isinstance(metrics, Iterable):
        raise UserError(
            "metrics must be a list of names and functions, or a dict from name to function, "
            f"not {shown(metrics)}"
        )
    pairs = (
        metrics.items() if isinstance(metrics, Mapping) else [(name_of(metric), metric) for metric in metrics]
    )
    named, own = [], {}
    for name, metric in pairs:
        if isinstance(metric, str):
            if name == metric:
                METRICS[metric]  # says which there are
                named.append(metric)
            else:
                own[str(name)] = METRICS[metric]
        elif isinstance(metric, type) or not callable(metric):
            raise UserError(f"metrics: {name!r} must be a function of (outputs, labels), not {shown(metric)}")
        else:
            own[str(name)] = metric
    if named:
        found.choose("metrics", {"evaluation.metrics": named})
    return own


def read_optimizer(found: Arguments, optimizer: object) -> Description | None:
    if optimizer is None:
        found.usual.update(SGD(lr=0.1, momentum=0.9).changes())
        return None
    if not isinstance(optimizer, Description):
        own = (
            f"swiftfl.{name_of(optimizer)}(lr=...)"
            if _is_torch_optimizer(optimizer)
            else "swiftfl.SGD(lr=0.1)"
        )
        raise UserError(f"optimizer must be a description such as {own}, not {shown(optimizer)}")
    plain = dataclasses.replace(optimizer, schedule="constant") if callable(optimizer.schedule) else optimizer
    found.choose("optimizer", plain.changes())
    return optimizer


def _is_torch_optimizer(value: object) -> bool:
    kind = value if isinstance(value, type) else type(value)
    return kind.__module__.startswith("torch.optim")


def read_algorithm(
    found: Arguments, algorithm: object, optimizer: Description | None
) -> Algorithm[Verb] | Callable[[Context], Algorithm[Verb]] | None:
    if isinstance(algorithm, str):
        if algorithm != "swift":
            choose_named(found, "algorithm", algorithm, ALGORITHMS, "algorithm.name", "algorithm.*")
        return None
    if isinstance(algorithm, type):
        raise UserError(f"algorithm is the class {algorithm.__name__}: give an object of it")
    if callable(algorithm):
        make: Callable[[Context], Algorithm[Verb]] = algorithm
        return make
    missing = [part for part in ("name", "in_rounds", "rule", "step") if not hasattr(algorithm, part)]
    if missing:
        raise UserError(
            f"algorithm must be a name or an algorithm, and {shown(algorithm)} has no {', '.join(missing)} "
            "(docs/verbs.md)"
        )
    own: Algorithm[Verb] = algorithm  # type: ignore[assignment]
    return own if optimizer is None else WithRule(own)


class WithRule:
    """Makes copies of an algorithm that have the rule of the optimizer that `train` was given."""

    def __init__(self, algorithm: Algorithm[Verb]) -> None:
        self.algorithm, self.in_rounds = algorithm, algorithm.in_rounds
        self.__qualname__ = type(algorithm).__qualname__

    def __call__(self, context: Context) -> Algorithm[Verb]:
        changed = copy.copy(self.algorithm)
        try:
            object.__setattr__(changed, "rule", context.rule)
        except AttributeError:
            raise UserError(
                f"algorithm {self.__qualname__} has a rule that cannot be replaced: leave optimizer out"
            ) from None
        return changed
