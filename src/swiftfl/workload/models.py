"""The models by name, as factories that a workload can call to start afresh."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from torch import nn

from swiftfl.errors import UserError

Factory = Callable[[], nn.Module]


def logistic(shape: Sequence[int], classes: int) -> nn.Module:
    """Multinomial logistic regression: one linear layer on the flattened input."""
    linear = nn.Linear(math.prod(shape), classes)
    return linear if len(shape) == 1 else nn.Sequential(nn.Flatten(), linear)


def mlp(shape: Sequence[int], classes: int, hidden: int = 64) -> nn.Module:
    """One hidden layer of rectified units."""
    layers: list[nn.Module] = [] if len(shape) == 1 else [nn.Flatten()]
    layers += [nn.Linear(math.prod(shape), hidden), nn.ReLU(), nn.Linear(hidden, classes)]
    return nn.Sequential(*layers)


MODELS: dict[str, Callable[..., nn.Module]] = {"logistic": logistic, "mlp": mlp}


def model(name: str, shape: Sequence[int], classes: int, norm: str | None = None, **options: int) -> Factory:
    """A factory of the named model for inputs of this shape; `norm` chooses batch or group normalisation.

    >>> model("logistic", (64,), 10)()
    Linear(in_features=64, out_features=10, bias=True)
    """
    if name not in MODELS:
        raise UserError(f"no model is called {name!r}; there are {', '.join(sorted(MODELS))}")
    if norm is not None:
        raise UserError(f"model {name} has no normalisation to choose")

    def build() -> nn.Module:
        return MODELS[name](tuple(shape), classes, **options)

    return build
