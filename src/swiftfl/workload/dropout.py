"""Dropout whose masks are data: drawn by (client, counter), and the same alone or in a group.

torch's own dropout draws from one global generator, so that a mask would depend on who was served
before. Here each batch has its own stream; a single client draws from it as its forward pass goes, and
for a group every client's masks are drawn beforehand, in the same order, and handed to vmap as input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from swiftfl.sample import Batch
from swiftfl.streams import number

_WHOLE_CHANNELS = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


@dataclass(frozen=True)
class Call:
    """One use of a dropout layer in a forward pass."""

    name: str
    p: float
    shape: tuple[int, ...]


class Masks:
    """The dropout layers of a module, made keyed; empty if it has none."""

    def __init__(self, module: nn.Module, seed: int, device: torch.device, dtype: torch.dtype) -> None:
        self._seed, self._dtype = seed, dtype
        self._generator = torch.Generator(device)
        self.calls: list[Call] = []
        self._layers = _replace(module, self)

    def start(self, batch: Batch) -> None:
        """Begin the forward pass of this batch."""
        if self._layers:
            self.calls = []
            self._generator.manual_seed(number(self._seed, "dropout", batch.client, batch.counter))

    def draw(self, call: Call) -> Tensor:
        """The next mask; what is kept is scaled up, so that the mean stays."""
        self.calls.append(call)
        mask = torch.empty(call.shape, dtype=self._dtype, device=self._generator.device)
        if call.p >= 1.0:
            return mask.zero_()
        return mask.bernoulli_(1.0 - call.p, generator=self._generator).div_(1.0 - call.p)

    def stacked(self, calls: Sequence[Call], batches: Sequence[Batch]) -> dict[str, Tensor]:
        """Every client's masks for these calls, by buffer name."""
        if len({call.name for call in calls}) < len(calls):
            raise ValueError("a dropout layer is used twice in its forward pass")
        masks: dict[str, list[Tensor]] = {f"{call.name}.mask": [] for call in calls}
        for batch in batches if calls else ():
            self.start(batch)
            for call in calls:
                masks[f"{call.name}.mask"].append(self.draw(call))
        return {name: torch.stack(drawn) for name, drawn in masks.items()}


class KeyedDropout(nn.Module):
    """Stands in for a dropout layer; `mask` is given when mapped, else drawn from the batch's stream."""

    def __init__(self, name: str, p: float, whole_channels: bool, masks: Masks) -> None:
        super().__init__()
        self.name, self.p = name, p
        self._whole_channels = whole_channels
        self._masks = masks
        self.mask: Tensor | None
        self.register_buffer("mask", None, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return x
        if self.mask is not None:
            return x * self.mask
        shape = (*x.shape[:2], *(1,) * (x.ndim - 2)) if self._whole_channels else tuple(x.shape)
        return x * self._masks.draw(Call(self.name, self.p, shape))


def _replace(module: nn.Module, masks: Masks) -> int:
    """Put keyed layers in the place of torch's; gives how many."""
    found = 0
    for prefix, parent in list(module.named_modules()):
        for name, child in parent._modules.items():
            if type(child) is nn.Dropout or type(child) in _WHOLE_CHANNELS:
                whole = type(child) is not nn.Dropout
                full = f"{prefix}.{name}" if prefix else name
                parent._modules[name] = KeyedDropout(full, float(child.p), whole, masks)
                found += 1
    return found
