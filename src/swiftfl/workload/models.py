"""The models by name, as factories that a workload can call to start afresh."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import nn

from swiftfl.errors import UserError
from swiftfl.registry import Option, Registry, options_of
from swiftfl.settings import Count, checked_options
from swiftfl.workload.resnet import (
    norm_layer,
    resnet18,
    resnet34,
    resnet50,
    resnet101,
    resnet152,
    thin_resnet18,
    thin_resnet34,
    thin_resnet50,
    thin_resnet101,
    thin_resnet152,
)

MODELS: Registry[Callable[..., nn.Module]] = Registry("model")
"""Functions of the inputs' shape, the number of classes and options of their own."""


@MODELS.add("logistic")
def logistic(shape: Sequence[int], classes: int) -> nn.Module:
    """Multinomial logistic regression: one linear layer on the flattened input."""
    linear = nn.Linear(math.prod(shape), classes)
    return linear if len(shape) == 1 else nn.Sequential(nn.Flatten(), linear)


@MODELS.add("mlp")
def mlp(shape: Sequence[int], classes: int, hidden: Count = 64) -> nn.Module:
    """One hidden layer of rectified units."""
    layers: list[nn.Module] = [] if len(shape) == 1 else [nn.Flatten()]
    layers += [nn.Linear(math.prod(shape), hidden), nn.ReLU(), nn.Linear(hidden, classes)]
    return nn.Sequential(*layers)


@MODELS.add("cnn")
def cnn(shape: Sequence[int], classes: int, width: Count = 16, norm: str | None = None) -> nn.Module:
    """Three 3x3 convolutions of `width`, 2 `width` and 4 `width` planes, each halving the image.

    For 32x32 colour images in 10 classes 33,834 parameters; no normalisation unless asked for.
    """
    if len(shape) != 3 or min(shape[1:]) < 8:
        raise UserError(f"cnn needs images (channels, height, width) of at least 8x8, not {tuple(shape)}")
    layers: list[nn.Module] = []
    planes = [shape[0], width, 2 * width, 4 * width]
    for inputs, outputs in pairwise(planes):
        layers.append(nn.Conv2d(inputs, outputs, 3, padding=1))
        if norm is not None:
            layers.append(norm_layer(norm)(outputs))
        # The maximum first: it commutes with ReLU, which then has a quarter of the numbers to look at.
        layers += [nn.MaxPool2d(2), nn.ReLU()]
    pixels = (shape[1] // 8) * (shape[2] // 8)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(planes[-1] * pixels, classes))


for _build in (
    *(resnet18, resnet34, resnet50, resnet101, resnet152),
    *(thin_resnet18, thin_resnet34, thin_resnet50, thin_resnet101, thin_resnet152),
):
    MODELS.register(_build.__name__, _build)


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
    with torch.device("meta"):
        build()
    return build
