"""The part of a configuration that says what clients do: algorithm, update rule, step size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import ConfigDict, field_validator, model_validator

from swiftfl.algorithms import ALGORITHMS
from swiftfl.experiment.options import (
    COMMON,
    OF_STEP_SIZES,
    Tree,
    algorithm_options,
    options_owner,
    refuse_of_other_rules,
    schedules_with,
    users_of,
)
from swiftfl.experiment.own import own_name
from swiftfl.experiment.section import Section
from swiftfl.graph.methods import method_names
from swiftfl.mixing import MIXINGS, MixRule
from swiftfl.registry import UnknownNameError, options_of
from swiftfl.rules import RULES, Clipped, Moments, UpdateRule
from swiftfl.schedule import SCHEDULES, StepSize, after_warmup
from swiftfl.settings import NotBelowZero, Positive, SettingError, checked_options, no_such_setting


class StepSizeConfig(Section):
    """`initial`, after a linear warm-up of `warmup` epochs, by a schedule whose options stand beside."""

    model_config = ConfigDict(extra="allow", frozen=True)

    initial: NotBelowZero = 0.1
    """The step size (learning rate)."""
    warmup: NotBelowZero = 0.0
    """Epochs until the step size is reached, linearly."""
    corrected: bool = False
    """Of swift: steps are as long as the time that they span; `step_size: corrected` for short."""
    schedule: str = "step"
    """How the step size changes after that; options of the schedule stand beside."""

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, tree: Any) -> Any:
        if tree == "corrected":
            tree = {"corrected": True}
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
    """What the clients do: an algorithm, an update rule, a mixing rule, and their options beside these keys.

    `clip` is the largest norm of a gradient; `moments` says what averaging does to what the rule remembers.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str = "swift"
    """The algorithm."""
    weights: str | None = None
    """How clients weigh their neighbours; by default as the algorithm is made for."""
    rule: str = "sgd"
    """The update rule (optimizer)."""
    step_size: StepSizeConfig = StepSizeConfig()
    """The step size and how it changes."""
    clip: Positive | None = None
    """The largest norm of a gradient; longer ones shrink."""
    moments: Moments = "kept"
    """When models are averaged, what the rule remembers is kept or reset."""
    mixing: str = "plain"
    """How models are averaged where a neighbour may be bad: plain, clipped, trimmed."""

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, tree: Any) -> Any:
        if not isinstance(tree, Mapping):
            return tree
        name, rule = tree.get("name", "swift"), tree.get("rule", "sgd")
        mixing = tree.get("mixing", "plain")
        if not (isinstance(name, str) and isinstance(rule, str) and isinstance(mixing, str)):
            return tree
        name = own_name(name)
        known = algorithm_options(name, rule, mixing)
        given = {key: value for key, value in tree.items() if key not in COMMON}
        refuse_of_other_rules(given, known, rule)
        values = checked_options(options_owner(name, rule, mixing), known, given, "algorithm.", users_of)
        common = {key: value for key, value in tree.items() if key in COMMON}
        return {**common, "name": name, **values}

    @field_validator("weights")
    @classmethod
    def _method_exists(cls, name: str | None) -> str | None:
        if name is not None and name not in method_names():
            raise UnknownNameError("weight method", name, method_names())
        return name

    @model_validator(mode="after")
    def _steps_can_be_corrected(self) -> AlgorithmConfig:
        if self.step_size.corrected and not ALGORITHMS[self.name].corrects_steps:
            able = ", ".join(name for name, entry in ALGORITHMS.items() if entry.corrects_steps)
            raise SettingError(
                "algorithm.step_size.corrected", f"has no effect on {self.name}, only on {able}"
            )
        return self

    @model_validator(mode="after")
    def _mixing_has_an_effect(self) -> AlgorithmConfig:
        if self.mixing != "plain" and not ALGORITHMS[self.name].weighted:
            able = ", ".join(name for name, entry in ALGORITHMS.items() if entry.weighted)
            raise SettingError(
                "algorithm.mixing",
                f"{self.mixing} has no effect on {self.name}, which does not average with its neighbours by "
                f"their weights: only on {able}",
            )
        return self

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

    def mix_rule(self) -> MixRule | None:
        """None for the plain average."""
        given, make = self.model_extra or {}, MIXINGS[self.mixing]
        return make(**{key: given[key] for key in options_of(make)})
