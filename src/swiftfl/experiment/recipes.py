"""The recipes of `swiftfl run`."""

from __future__ import annotations

from collections.abc import Callable

from swiftfl.errors import UserError
from swiftfl.experiment.config import (
    AlgorithmConfig,
    Config,
    DataConfig,
    EngineConfig,
    EvaluationConfig,
    ModelConfig,
    StepSizeConfig,
)


def digits() -> Config:
    """The 1,797 handwritten digits of the package, a small MLP, 16 clients in a ring."""
    return Config(
        data=DataConfig(dataset="digits", batch_size=16),
        model=ModelConfig(name="mlp"),
        algorithm=AlgorithmConfig(step_size=StepSizeConfig(initial=0.1), momentum=0.9),
        engine=EngineConfig(epochs=80),
    )


def fashion() -> Config:
    """Fashion-MNIST, a small CNN, 16 clients in a ring."""
    return Config(
        data=DataConfig(dataset="fashion_mnist", batch_size=32),
        model=ModelConfig(name="cnn"),
        algorithm=AlgorithmConfig(step_size=StepSizeConfig(initial=0.05), momentum=0.9, weight_decay=1e-4),
        engine=EngineConfig(epochs=5),
        evaluation=EvaluationConfig(clients=4),
    )


def cifar10() -> Config:
    """Real CIFAR-10 with the usual augmentation, a small CNN, 16 clients in a ring."""
    return Config(
        data=DataConfig(dataset="cifar10", batch_size=32, augment=True),
        model=ModelConfig(name="cnn"),
        algorithm=AlgorithmConfig(step_size=StepSizeConfig(initial=0.05), momentum=0.9, weight_decay=1e-4),
        engine=EngineConfig(epochs=10),
        evaluation=EvaluationConfig(clients=4),
    )


def synthetic() -> Config:
    """Made-up classes of any size, logistic regression: for many clients and for timing."""
    return Config(
        data=DataConfig(
            dataset="synthetic", options={"samples": 20_000, "shape": 64, "classes": 10}, batch_size=16
        ),
        model=ModelConfig(name="logistic"),
        algorithm=AlgorithmConfig(step_size=StepSizeConfig(initial=0.1), momentum=0.0),
        engine=EngineConfig(epochs=5),
    )


RECIPES: dict[str, Callable[[], Config]] = {
    recipe.__name__: recipe for recipe in (digits, fashion, cifar10, synthetic)
}


def recipe(name: str) -> Config:
    if name not in RECIPES:
        raise UserError(f"there is no recipe {name!r}: choose from {', '.join(RECIPES)}")
    return RECIPES[name]()
