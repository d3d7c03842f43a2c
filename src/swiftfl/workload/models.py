"""The models by name, as factories that a workload can call to start afresh.

A model of one's own is a function of the inputs' shape, the number of classes and options, which returns a
torch module, under `@MODELS.add("name")`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from swiftfl.errors import UserError
from swiftfl.memory import require_memory
from swiftfl.registry import Option, Registry, absent, options_of
from swiftfl.settings import checked_options

MODELS: Registry[Callable[..., nn.Module]] = Registry("model", stand_in=absent)


def model_options(name: str) -> dict[str, Option]:
    return options_of(MODELS[name], after=2)


@dataclass(frozen=True)
class Factory:
    """Builds a named model afresh at each call; unlike a closure it can be sent to another process."""

    name: str
    shape: tuple[int, ...]
    classes: int
    options: tuple[tuple[str, object], ...] = ()

    def __call__(self) -> nn.Module:
        return MODELS[self.name](self.shape, self.classes, **dict(self.options))


def model(
    name: str, shape: Sequence[int], classes: int, norm: str | None = None, **options: object
) -> Factory:
    """A factory of the named model for inputs of this shape; `norm` is "batch" or "group".

    Built once without memory here, so that an impossible request is refused at once.

    >>> model("logistic", (64,), 10)()
    Linear(in_features=64, out_features=10, bias=True)
    """
    given = {**options} if norm is None else {**options, "norm": norm}
    values = checked_options(f"model {name}", model_options(name), given, section="option ")
    build = Factory(name, tuple(shape), classes, tuple(values.items()))
    require_memory(f"model {name} with {_words(values)}", _bytes(build, values))
    return build


def _bytes(build: Factory, values: Mapping[str, object]) -> int:
    """What one model takes, found without taking it."""
    try:
        with torch.device("meta"):
            return sum(p.numel() * p.element_size() for p in build().parameters())
    except (RuntimeError, TypeError, OverflowError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"model {build.name} cannot be built with {_words(values)}: {reason}") from None


def _words(values: Mapping[str, object]) -> str:
    return ", ".join(f"{option} {value}" for option, value in values.items()) or "no options"
