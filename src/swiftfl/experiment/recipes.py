"""The recipes of `swiftfl run`."""

from __future__ import annotations

from collections.abc import Callable

from swiftfl.experiment.algorithm_config import AlgorithmConfig
from swiftfl.experiment.config import Config, EvaluationConfig
from swiftfl.experiment.engine_config import EngineConfig
from swiftfl.experiment.learning_config import DataConfig, ModelConfig
from swiftfl.registry import Registry

RECIPES: Registry[Callable[[], Config]] = Registry("recipe")
"""Functions that return a whole configuration."""


@RECIPES.add("digits")
def digits() -> Config:
    """The 1,797 handwritten digits of the package, a small MLP, 16 clients in a ring."""
    return Config(
        data=DataConfig(dataset="digits", batch_size=16),
        model=ModelConfig(name="mlp"),
        algorithm=_sgd(0.1, momentum=0.9),
        engine=EngineConfig(epochs=80),
    )


@RECIPES.add("fashion")
def fashion() -> Config:
    """Fashion-MNIST, a small CNN, 16 clients in a ring."""
    return Config(
        data=DataConfig(dataset="fashion_mnist", batch_size=32),
        model=ModelConfig(name="cnn"),
        algorithm=_sgd(0.05, momentum=0.9, weight_decay=1e-4),
        engine=EngineConfig(epochs=5),
        evaluation=EvaluationConfig(clients=4),
    )


@RECIPES.add("cifar10")
def cifar10() -> Config:
    """Real CIFAR-10 with the usual augmentation, a small CNN, 16 clients in a ring."""
    return Config(
        data=DataConfig(dataset="cifar10", batch_size=32, augment=True),
        model=ModelConfig(name="cnn"),
        algorithm=_sgd(0.05, momentum=0.9, weight_decay=1e-4),
        engine=EngineConfig(epochs=10),
        evaluation=EvaluationConfig(clients=4),
    )


@RECIPES.add("synthetic")
def synthetic() -> Config:
    """Made-up classes of any size, logistic regression: for many clients and for timing."""
    return Config(
        data=DataConfig(
            dataset="synthetic", options={"samples": 20_000, "shape": 64, "classes": 10}, batch_size=16
        ),
        model=ModelConfig(name="logistic"),
        algorithm=_sgd(0.1, momentum=0.0),
        engine=EngineConfig(epochs=5),
    )


def _sgd(step_size: float, **options: float) -> AlgorithmConfig:
    """SWIFT with the rule sgd."""
    return AlgorithmConfig.model_validate({"step_size": {"initial": step_size}, **options})


def recipe(name: str) -> Config:
    return RECIPES[name]()
