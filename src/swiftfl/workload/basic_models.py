"""Small models: logistic regression, one hidden layer, three convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from swiftfl.errors import UserError
from swiftfl.settings import Count
from swiftfl.workload.models import MODELS
from swiftfl.workload.norms import norm_layer


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
