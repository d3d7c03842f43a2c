"""Optimizers as users describe them in Python: `swiftfl.SGD(lr=0.1, momentum=0.9, schedule="cosine")`.

Inside, an update rule turns a gradient into a move, and a schedule says how long the step is. For users both
are one thing, with one `lr`. A description holds what they chose and nothing that changes; it becomes

* settings of a configuration: `changes()`, which names the registered rule and schedule;
* objects for a `Setup`: `update_rule()` and `step_size(run_epochs)`.

A `schedule` is a name ("cosine"), a name with options ({"name": "step", "at": (30, 60), "rate": 0.1}), or a
function of the epoch that says what `lr` is multiplied by. A function has no name, so that only `step_size`
can use it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, TypeAlias

from swiftfl.errors import UserError
from swiftfl.registry import options_of
from swiftfl.rules import RULES, Clipped, Moments, UpdateRule
from swiftfl.schedule import SCHEDULES, Scaled, StepSize, after_warmup
from swiftfl.settings import NotBelowZero, Positive, SettingError, checked_options, shown

Schedule: TypeAlias = str | Mapping[str, object] | Callable[[float], float]


def _of_every_optimizer(
    *, lr: NotBelowZero, warmup: NotBelowZero = 0.0, clip: Positive | None = None, moments: Moments = "kept"
) -> None:
    """The types of what every optimizer has, checked like the options of a configuration."""


_CHECKED = options_of(_of_every_optimizer)


@dataclass(frozen=True, kw_only=True)
class Description:
    """What all optimizers have: a step size with its schedule, clipping, and what averaging does to moments.

    `warmup` is a number of epochs, `clip` the largest norm of a gradient. Wrong values are refused at once.
    """

    rule: ClassVar[str]
    lr: float = field(kw_only=False)
    schedule: Schedule = "constant"
    warmup: float = 0.0
    clip: float | None = None
    moments: Moments = "kept"

    def __post_init__(self) -> None:
        for name, value in {"lr": self.lr, "warmup": self.warmup, "clip": self.clip, **self.options}.items():
            if isinstance(value, str):
                raise UserError(f"swiftfl.{type(self).__name__}: {name} must be a number, not {value!r}")
            if name == "lr" and callable(value):
                said = "lr must be a number, not a function: give that as schedule="
                raise UserError(f"swiftfl.{type(self).__name__}: {said}")
        try:
            checked_options(type(self).__name__, _CHECKED, {key: getattr(self, key) for key in _CHECKED})
            checked_options(self.rule, options_of(RULES[self.rule]), self.options)
            self.update_rule()
            self.step_size(run_epochs=1)(0)
        except SettingError as error:
            raise UserError(f"swiftfl.{type(self).__name__}: {error}") from None

    @property
    def options(self) -> dict[str, Any]:
        """The options of the update rule."""
        own = [f.name for f in fields(self) if f.name not in (*_CHECKED, "schedule")]
        return {name: getattr(self, name) for name in own}

    def update_rule(self) -> UpdateRule:
        """The rule, with clipping in front of it. Moments are the algorithm's: see `swiftfl.moments`."""
        rule = RULES[self.rule](**self.options)
        return rule if self.clip is None else Clipped(rule, self.clip)

    def step_size(self, run_epochs: int | None) -> StepSize:
        """The schedule; `run_epochs` is the length of the run, None where it is not a number of epochs."""
        if callable(self.schedule):
            found: StepSize = Scaled(self.lr, self.schedule)
        else:
            name, options = self._named_schedule()
            found = SCHEDULES[name](self.lr, run_epochs, **options)
        return after_warmup(found, self.warmup)

    def changes(self) -> dict[str, Any]:
        """The settings of a configuration that make this optimizer, for `Config.with_changes`."""
        if callable(self.schedule):
            raise UserError(
                "a schedule that is a function has no name for a configuration: "
                "register it with @SCHEDULES.add (CONTRIBUTING.md) and give its name"
            )
        name, options = self._named_schedule()
        return {
            "algorithm.rule": self.rule,
            **{f"algorithm.{key}": value for key, value in self.options.items()},
            "algorithm.step_size": {"initial": self.lr, "schedule": name, "warmup": self.warmup, **options},
            "algorithm.clip": self.clip,
            "algorithm.moments": self.moments,
        }

    def _named_schedule(self) -> tuple[str, dict[str, Any]]:
        given = {"name": self.schedule} if isinstance(self.schedule, str) else self.schedule
        if not isinstance(given, Mapping) or not isinstance(given.get("name"), str):
            raise UserError(
                f"swiftfl.{type(self).__name__}: schedule must be a name, {{'name': ..., option: ...}} or a "
                f"function of the epoch, not {shown(self.schedule)}"
            )
        name = str(given["name"])
        options = {key: value for key, value in given.items() if key != "name"}
        return name, checked_options(f"schedule {name}", options_of(SCHEDULES[name]), options, "schedule.")


@dataclass(frozen=True, kw_only=True)
class SGD(Description):
    """Stochastic gradient descent (`swiftfl.rules.sgd`).

    Args:
        lr: The step size.
        schedule: How it changes: a name, {"name": ..., option: ...}, or a function of the epoch (a factor).
        warmup: Epochs in which the step size grows to `lr`.
        clip: The largest norm of a gradient; longer ones are shortened.
        moments: "kept" or "reset" when models are averaged.
        momentum: From 0 to below 1.
        weight_decay: Added to the gradient, times the model.
        nesterov: Whether momentum looks ahead.
    """

    rule: ClassVar[str] = "sgd"
    momentum: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False


@dataclass(frozen=True, kw_only=True)
class Adam(Description):
    """Adam (`swiftfl.rules.adam`).

    Args:
        lr: The step size.
        schedule: How it changes: a name, {"name": ..., option: ...}, or a function of the epoch (a factor).
        warmup: Epochs in which the step size grows to `lr`.
        clip: The largest norm of a gradient; longer ones are shortened.
        moments: "kept" or "reset" when models are averaged.
        beta1: How long the mean of gradients remembers.
        beta2: How long the mean of their squares remembers.
        epsilon: Added to the denominator.
        weight_decay: Added to the gradient, times the model.
    """

    rule: ClassVar[str] = "adam"
    lr: float = field(default=1e-3, kw_only=False)
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0


@dataclass(frozen=True, kw_only=True)
class AdamW(Adam):
    """Adam whose weight decay acts beside the moments (`swiftfl.rules.adam`).

    Args:
        lr: The step size.
        schedule: How it changes: a name, {"name": ..., option: ...}, or a function of the epoch (a factor).
        warmup: Epochs in which the step size grows to `lr`.
        clip: The largest norm of a gradient; longer ones are shortened.
        moments: "kept" or "reset" when models are averaged.
        beta1: How long the mean of gradients remembers.
        beta2: How long the mean of their squares remembers.
        epsilon: Added to the denominator.
        weight_decay: Shrinks the model in each step, by `lr` times this.
    """

    rule: ClassVar[str] = "adamw"
    weight_decay: float = 0.01


@dataclass(frozen=True, kw_only=True)
class RMSprop(Description):
    """RMSprop (`swiftfl.rules.rmsprop`).

    Args:
        lr: The step size.
        schedule: How it changes: a name, {"name": ..., option: ...}, or a function of the epoch (a factor).
        warmup: Epochs in which the step size grows to `lr`.
        clip: The largest norm of a gradient; longer ones are shortened.
        moments: "kept" or "reset" when models are averaged.
        alpha: How long the mean of squared gradients remembers.
        epsilon: Added to the denominator.
        momentum: From 0 to below 1.
        weight_decay: Added to the gradient, times the model.
    """

    rule: ClassVar[str] = "rmsprop"
    lr: float = field(default=1e-2, kw_only=False)
    alpha: float = 0.99
    epsilon: float = 1e-8
    momentum: float = 0.0
    weight_decay: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Lion(Description):
    """Lion (`swiftfl.rules.lion`).

    Args:
        lr: The step size.
        schedule: How it changes: a name, {"name": ..., option: ...}, or a function of the epoch (a factor).
        warmup: Epochs in which the step size grows to `lr`.
        clip: The largest norm of a gradient; longer ones are shortened.
        moments: "kept" or "reset" when models are averaged.
        beta1: The share of the mean in the direction of a step.
        beta2: How long the mean of gradients remembers.
        weight_decay: Shrinks the model in each step, by `lr` times this.
    """

    rule: ClassVar[str] = "lion"
    lr: float = field(default=1e-4, kw_only=False)
    beta1: float = 0.9
    beta2: float = 0.99
    weight_decay: float = 0.0
