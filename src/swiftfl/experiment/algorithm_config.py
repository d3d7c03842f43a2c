"""The part of a configuration that says what clients do: algorithm, update rule, step size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import ConfigDict, field_validator, model_validator

from swiftfl.algorithms import ALGORITHMS
from swiftfl.errors import UserError
from swiftfl.experiment.options import (
    COMMON,
    OF_STEP_SIZES,
    Tree,
    algorithm_options,
    options_owner,
    schedules_with,
    users_of,
)
from swiftfl.experiment.section import Section
from swiftfl.graph.methods import method_names
from swiftfl.registry import options_of, suggestion
from swiftfl.rules import RULES, Clipped, Moments, UpdateRule
from swiftfl.schedule import SCHEDULES, StepSize, after_warmup
from swiftfl.settings import NotBelowZero, Positive, SettingError, checked_options, no_such_setting


class StepSizeConfig(Section):
    """`initial`, after a linear warm-up of `warmup` epochs, by a schedule whose options stand beside."""

    model_config = ConfigDict(extra="allow", frozen=True)

    initial: NotBelowZero = 0.1
    warmup: NotBelowZero = 0.0
    schedule: str = "step"

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, tree: Any) -> Any:
        if not isinstance(tree, Mapping) or not isinstance(tree.get("schedule", "step"), str):
            return tree
        name = tree.get("schedule", "step")
        known = options_of(SCHEDULES[name])
        own = {key: value for key, value in tree.items() if key in OF_STEP_SIZES}
        given = {key: value for key, value in tree.items() if key not in OF_STEP_SIZES}
        for key in given:
            if key not in known and not schedules_with(key):
                raise no_such_setting(
                    f"algorithm.step_size.{key}", [*OF_STEP_SIZES, *known], "algorithm.step_size"
                )
        values = checked_options(f"schedule {name}", known, given, "algorithm.step_size.", schedules_with)
        return {**own, **values}

    @property
    def options(self) -> Tree:
        """The values of the schedule's options."""
        given = self.model_extra or {}
        return {key: given[key] for key in options_of(SCHEDULES[self.schedule])}

    def make(self, run_epochs: int | None) -> StepSize:
        """The schedule of a run of so many epochs, or of one that ends after a number of steps."""
        found = SCHEDULES[self.schedule](self.initial, run_epochs, **self.options)
        return after_warmup(found, self.warmup)


class AlgorithmConfig(Section):
    """What the clients do: an algorithm, an update rule, and the options of both beside these keys.

    `clip` is the largest norm of a gradient; `moments` says what averaging does to what the rule remembers.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str = "swift"
    weights: str | None = None
    rule: str = "sgd"
    step_size: StepSizeConfig = StepSizeConfig()
    clip: Positive | None = None
    moments: Moments = "kept"

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, tree: Any) -> Any:
        if not isinstance(tree, Mapping):
            return tree
        name, rule = tree.get("name", "swift"), tree.get("rule", "sgd")
        if not (isinstance(name, str) and isinstance(rule, str)):
            return tree
        known = algorithm_options(name, rule)
        given = {key: value for key, value in tree.items() if key not in COMMON}
        values = checked_options(options_owner(name, rule), known, given, "algorithm.", users_of)
        return {**{key: value for key, value in tree.items() if key in COMMON}, **values}

    @field_validator("weights")
    @classmethod
    def _method_exists(cls, name: str | None) -> str | None:
        if name is not None and name not in method_names():
            raise UserError(f"there is no weight method {name!r}: {suggestion(name, method_names())}")
        return name

    @model_validator(mode="after")
    def _moments_have_an_effect(self) -> AlgorithmConfig:
        if self.moments == "kept":
            return self
        if not ALGORITHMS[self.name].averages_models:
            raise SettingError(
                "algorithm.moments",
                f"{self.moments} has no effect: {self.name} averages gradients, so all clients have the same",
            )
        if not self.update_rule().init(np.zeros(1)):
            raise SettingError(
                "algorithm.moments",
                f"{self.moments} has no effect: rule {self.rule} without momentum remembers nothing",
            )
        return self

    @property
    def options(self) -> Tree:
        """The values of the algorithm's own options."""
        given = self.model_extra or {}
        return {key: given[key] for key in options_of(ALGORITHMS[self.name].make)}

    @property
    def rule_options(self) -> Tree:
        """The values of the update rule's options."""
        given = self.model_extra or {}
        return {key: given[key] for key in options_of(RULES[self.rule])}

    def update_rule(self) -> UpdateRule:
        rule = RULES[self.rule](**self.rule_options)
        return rule if self.clip is None else Clipped(rule, self.clip)
