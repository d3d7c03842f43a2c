"""What the arguments of `swiftfl.train` come to: settings of a configuration, and objects without a name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, TypeAlias

from swiftfl.errors import UserError
from swiftfl.experiment.config import Config
from swiftfl.experiment.given import Given
from swiftfl.experiment.used import check_engine, check_used
from swiftfl.registry import Registry
from swiftfl.settings import SettingError, name_and_options

Changes: TypeAlias = dict[str, Any]


@dataclass
class Arguments:
    """What `train` was given. `changes` has only what a user chose, `names` how each setting was called."""

    changes: Changes = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    usual: Changes = field(default_factory=dict)
    given: Given = field(default_factory=Given)

    def choose(self, argument: str, changes: Mapping[str, Any]) -> None:
        """Settings that an argument makes; two that say the same are refused."""
        for key in changes:
            if self.names.get(key, argument) != argument:
                raise UserError(f"{argument} and {self.names[key]} say the same: give one of them")
        for key, other in product(changes, self.changes):
            whole, inside = sorted((key, other), key=len)
            section = changes.get(whole, self.changes.get(whole))
            twice = isinstance(section, Mapping) and any(inside == f"{whole}.{name}" for name in section)
            if twice and self.names[other] != argument:
                raise UserError(f"{argument} and {self.names[other]} say the same: give one of them")
        self.changes.update(changes)
        self.names.update(dict.fromkeys(changes, argument))

    def config(self) -> Config:
        """The configuration of a new run."""
        return self._changed(Config(), {**self.usual, **self.changes})

    def changed(self, recorded: Config) -> Config:
        """A recorded configuration with what was chosen now."""
        return self.given.described(self._changed(recorded, self.changes))

    def _changed(self, config: Config, changes: Changes) -> Config:
        check_engine(changes.get("engine.name", config.engine.name), self.names)
        try:
            config = config.with_changes(changes)
        except SettingError as error:
            raise self._renamed(error) from None
        check_used(config, self.names)
        return config

    def _renamed(self, error: SettingError) -> UserError:
        """With the argument in place of the setting's name."""
        for key in sorted(self.names, key=len, reverse=True):
            if error.key == key:
                return error.renamed(self.names[key])
            if error.key.startswith(f"{key}."):
                return error.renamed(f"{self.names[key]}: {error.key[len(key) + 1 :]}")
        return error


def choose_named(
    found: Arguments, argument: str, text: str, registry: Registry[Any], key: str, options: str
) -> None:
    """A name, or `name:option=value,...`; options stand in a section, or beside the name (`options.*`)."""
    name, values = (text, {}) if text in registry or ":" not in text else name_and_options(text)
    registry[name]  # says which there are
    found.choose(argument, {key: name})
    if options.endswith(".*"):
        for option, value in values.items():
            found.choose(f"{argument}: {option}", {f"{options[:-2]}.{option}": value})
    elif values:
        found.choose(argument, {options: values})
