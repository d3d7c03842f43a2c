"""Objects of a user's own that take the place of what a configuration names.

A configuration then has `given:NAME` where a registered name would stand: config.json says what was used, and
whoever meets such a name without the object says so (`Given.check`). Everything else of a run is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from swiftfl.algorithm import Algorithm
from swiftfl.algorithms import Context
from swiftfl.data.dataset import Dataset
from swiftfl.errors import UserError
from swiftfl.experiment.config import Config
from swiftfl.registry import GIVEN, was_given
from swiftfl.verbs import Verb
from swiftfl.workload.losses import Loss
from swiftfl.workload.metrics import Metric
from swiftfl.workload.recorded_model import MakeModel

MakeAlgorithm: TypeAlias = Callable[[Context], Algorithm[Verb]]


@dataclass(frozen=True)
class Given:
    """What a user gave in Python; what is None is found by its name in the configuration.

    `model` is a module or a function that makes one. `data` has training and test set, and who holds what if
    that is fixed (`swiftfl.data.as_dataset`). `algorithm` is one with its own update rule, or a function that
    makes one from a `Context`, which has the rule of the configuration. `schedule` is a function of the epoch
    that says what the step size is multiplied by. If a function of the user's own gave all this,
    `Config.experiment` says which. A graph of one's own is no object: its edges stand in the configuration.
    """

    model: MakeModel | None = None
    data: Dataset | None = None
    loss: Loss | None = None
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    algorithm: Algorithm[Verb] | MakeAlgorithm | None = None
    schedule: Callable[[float], float] | None = None

    def changes(self, config: Config) -> dict[str, Any]:
        """What a configuration has to say of these objects: `given:NAME`."""
        found: dict[str, Any] = dict(self._names())
        if self.algorithm is not None:
            usual = "metropolis" if getattr(self.algorithm, "in_rounds", True) else "ccs"
            found["algorithm.weights"] = config.algorithm.weights or usual
        if self.metrics:
            named = [name for name in config.evaluation.metrics if not was_given(name)]
            found[_METRICS] = [*named, *(f"{GIVEN}{name}" for name in self.metrics)]
        return found

    def described(self, config: Config) -> Config:
        """The configuration with the names of these objects in it."""
        changes = self.changes(config)
        return config.with_changes(changes) if changes else config

    def used_by(self, config: Config) -> Given:
        """Without the objects in whose place the configuration has something else."""
        used = {name: getattr(self, name) for key, name in _OBJECTS.items() if was_given(_at(config, key))}
        recorded = _as_names(_at(config, _METRICS))
        metrics = {name: metric for name, metric in self.metrics.items() if f"{GIVEN}{name}" in recorded}
        return Given(**used, metrics=metrics)

    def check(self, config: Config) -> None:
        """Refuse a configuration that names other objects than these."""
        own = self.changes(config)
        for key in (*_PLACES, _METRICS):
            recorded, mine = _as_names(_at(config, key)), _as_names(own.get(key))
            missing = [name for name in recorded if was_given(name) and name not in mine]
            if missing:
                raise UserError(_missing(key, missing[0], next(filter(was_given, mine), None)))
            more = [name for name in mine if was_given(name) and name not in recorded]
            if more:
                raise UserError(
                    f"{key} is {', '.join(recorded) or 'not set'} in the configuration, not {more[0]}"
                )

    def _names(self) -> Iterator[tuple[str, str]]:
        objects = {"model.name": self.model, "model.loss": self.loss, "algorithm.name": self.algorithm}
        for key, value in {**objects, "algorithm.step_size.schedule": self.schedule}.items():
            if value is not None:
                yield key, name_of(value)
        if self.data is not None:
            yield "data.dataset", f"{GIVEN}{self.data.name}"
        if self.algorithm is not None and not callable(self.algorithm):
            yield "algorithm.rule", name_of(self.algorithm.rule)


_METRICS = "evaluation.metrics"
_PLACES = {
    "model.name": "model",
    "data.dataset": "train",
    "model.loss": "loss",
    "algorithm.name": "algorithm",
    "algorithm.step_size.schedule": "optimizer",
}
"""Where a name may stand for an object, and what `swiftfl.train` calls the object."""
_OBJECTS = {
    "model.name": "model",
    "data.dataset": "data",
    "model.loss": "loss",
    "algorithm.name": "algorithm",
    "algorithm.step_size.schedule": "schedule",
}
"""What the objects are called here."""


def needs_objects(config: Config) -> bool:
    """Whether a configuration names objects that were given in Python."""
    names = (name for key in (*_PLACES, _METRICS) for name in _as_names(_at(config, key)))
    return any(map(was_given, names))


def name_of(value: object) -> str:
    """`given:` and the name of a function or of an object's class, without where it was defined.

    >>> from torch import nn
    >>> name_of(nn.Linear(1, 1)), name_of(nn.Linear), name_of(lambda: None)
    ('given:Linear', 'given:Linear', 'given:<lambda>')
    """
    name = getattr(value, "__qualname__", None) or type(value).__qualname__
    return GIVEN + str(name).rpartition("<locals>.")[2]


def _at(config: Config, key: str) -> Any:
    found: Any = config
    for part in key.split("."):
        found = getattr(found, part)
    return found


def _as_names(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)  # type: ignore[arg-type]


def _missing(key: str, name: str, mine: str | None) -> str:
    what, argument = name.removeprefix(GIVEN), _PLACES.get(key, "metrics")
    if mine is not None:
        return f"{argument} was {what} when the run began, and is {mine.removeprefix(GIVEN)} now"
    return (
        f"{key} is {what}, which was given in Python and is not here: "
        f"give it again, swiftfl.train({argument}=..., resume=FOLDER)"
    )
