"""The section `faults`: clients that misbehave, for studies (docs/robust.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, Field, model_validator

from swiftfl.errors import UserError
from swiftfl.experiment.section import Section
from swiftfl.registry import options_of
from swiftfl.settings import SettingError, checked_options
from swiftfl.transports.poison import POISONS, Poison

_OWN = ("client", "kind")


class PoisonConfig(Section):
    """A client that publishes something else than its model; options of the kind stand beside."""

    model_config = ConfigDict(extra="allow", frozen=True)

    client: Annotated[int, Field(ge=0)]
    """Which client."""
    kind: str = "scaled"
    """What it sends: scaled, noise, drift."""

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, tree: Any) -> Any:
        kind = tree.get("kind", "scaled") if isinstance(tree, Mapping) else None
        if not isinstance(kind, str):
            return tree
        given = {key: value for key, value in tree.items() if key not in _OWN}
        values = checked_options(f"poison {kind}", options_of(POISONS[kind]), given, "faults.poison: ")
        return {**{key: value for key, value in tree.items() if key in _OWN}, **values}

    def make(self) -> Poison:
        given, make = self.model_extra or {}, POISONS[self.kind]
        return make(**{key: given[key] for key in options_of(make)})


class FaultsConfig(Section):
    poison: list[PoisonConfig] = []
    """Clients that send something else than their models; a list."""

    @model_validator(mode="after")
    def _each_once(self) -> FaultsConfig:
        clients = [one.client for one in self.poison]
        for client in clients:
            if clients.count(client) > 1:
                raise SettingError("faults.poison", f"names client {client} twice: give each one kind")
        return self

    def poisons(self, clients: int) -> dict[int, Poison]:
        """By client, what it does to its models."""
        for one in self.poison:
            if one.client >= clients:
                raise UserError(f"faults.poison: there is no client {one.client}, only 0 to {clients - 1}")
        return {one.client: one.make() for one in self.poison}
