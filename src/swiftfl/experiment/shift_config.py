"""The section `data.shift`: local data that change during training (docs/data.md)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from swiftfl.data.shift import Kind, Shift
from swiftfl.experiment.section import Section
from swiftfl.settings import NotBelowZero, Positive, SettingError


class ShiftConfig(Section):
    """One shift: what changes, from which epoch on, at which clients, and how often again."""

    kind: Kind
    """class_swap, label_rotation or input_noise."""
    at: NotBelowZero
    """The epoch of each client from which on it holds."""
    every: Positive | None = None
    """Epochs after which it happens once more; only once, if none are given."""
    clients: list[Annotated[int, Field(ge=0)]] | None = None
    """The clients that it happens to; all, if none are given."""
    classes: tuple[int, int] = (0, 1)
    """Of class_swap: the two classes."""
    scale: NotBelowZero = 1.0
    """Of input_noise: the standard deviation of the noise, of normalised inputs."""

    @model_validator(mode="after")
    def _uses_what_is_given(self) -> ShiftConfig:
        for name, kind in (("classes", "class_swap"), ("scale", "input_noise")):
            changed = getattr(self, name) != type(self).model_fields[name].default
            if changed and self.kind != kind:
                raise SettingError(f"data.shift: {name}", f"is for {kind}, not {self.kind}")
        return self

    def make(self) -> Shift:
        clients = None if self.clients is None else tuple(self.clients)
        return Shift(self.kind, self.at, self.every, clients, self.classes, self.scale)
