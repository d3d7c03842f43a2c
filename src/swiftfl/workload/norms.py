"""Normalisation layers by name."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from swiftfl.errors import UserError

Norm = Callable[[int], nn.Module]


def norm_layer(kind: str) -> Norm:
    """Batch normalisation, or group normalisation with groups of at most 16 channels (no buffers)."""
    if kind == "batch":
        return nn.BatchNorm2d
    if kind == "group":
        return lambda planes: nn.GroupNorm(max(1, planes // 16), planes)
    raise UserError(f"norm must be batch or group, not {kind!r}")
