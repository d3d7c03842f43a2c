"""Augmentation of images as tensor operations on a whole group of batches.

Every batch draws from its own stream (client, counter), so that an image is cropped and flipped alike
whether its batch is handled alone or together with those of a thousand other clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from swiftfl.errors import UserError
from swiftfl.sample import Batch
from swiftfl.streams import stream


@dataclass(frozen=True)
class Augment:
    """Random crop after padding with black, then a mirror image for every second one, as in the field."""

    padding: int = 4
    flip: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if self.padding < 0:
            raise UserError(f"augmentation: padding must not be negative, not {self.padding}")

    def __call__(self, images: Tensor, batches: Sequence[Batch]) -> Tensor:
        """`images` (samples, channels, height, width) of these batches, in their order."""
        if images.ndim != 4:
            raise UserError(f"augmentation needs images (channels, height, width), not {images.shape[1:]}")
        draws = [self._draw(batch) for batch in batches]
        joined = (np.concatenate(kind) for kind in zip(*draws, strict=True))
        down, right, mirrored = (torch.from_numpy(kind).to(images.device) for kind in joined)
        if self.padding:
            images = _crop(images, self.padding, down, right)
        if self.flip:
            images = torch.where(mirrored[:, None, None, None], images.flip(-1), images)
        return images

    def _draw(self, batch: Batch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        draw = stream(self.seed, "augment", batch.client, batch.counter)
        count = batch.indices.size
        down, right = draw.integers(0, 2 * self.padding + 1, (2, count))
        return down, right, draw.random(count) < 0.5


def _crop(images: Tensor, padding: int, down: Tensor, right: Tensor) -> Tensor:
    """Windows of the padded images; taken as views first, so that whole rows are copied."""
    height, width = images.shape[2:]
    padded = functional.pad(images, (padding,) * 4)
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)
    return windows[torch.arange(len(images), device=images.device), :, down, right]
