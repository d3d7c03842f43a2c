"""The recipes of `swiftfl run`."""

from __future__ import annotations

from collections.abc import Callable

from swiftfl.errors import UserError
from swiftfl.experiment.config import (
    AlgorithmConfig,
    Config,
    DataConfig,
    EngineConfig,
    ModelConfig,
    StepSizeConfig,
)


def digits() -> Config:
    """The 1,797 handwritten digits of the package, a small MLP, 16 clients in a ring."""
    return Config(
        data=DataConfig(dataset="digits", batch_size=16),
        model=ModelConfig(name="mlp"),
        algorithm=AlgorithmConfig(step_size=StepSizeConfig(initial=0.05), momentum=0.9),
        engine=EngineConfig(epochs=40),
    )


RECIPES: dict[str, Callable[[], Config]] = {"digits": digits}


def recipe(name: str) -> Config:
    if name not in RECIPES:
        raise UserError(f"there is no recipe {name!r}: choose from {', '.join(RECIPES)}")
    return RECIPES[name]()
