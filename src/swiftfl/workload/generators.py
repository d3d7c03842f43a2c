"""torch's generators of random numbers that a forward pass may draw from: the host's and its device's."""

from __future__ import annotations

import torch
from torch import Tensor


def devices(device: torch.device) -> list[torch.device]:
    """Devices whose generator is to be kept beside the host's."""
    return [device] if device.type == "cuda" else []


def states(device: torch.device) -> list[Tensor]:
    """Where the generators stand; whoever has drawn from one has moved it."""
    return [torch.get_rng_state(), *map(torch.cuda.get_rng_state, devices(device))]
