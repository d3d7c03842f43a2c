"""Generators of random numbers that a forward pass may draw from.

torch's, the host's and its device's, are seeded by client and step. NumPy's and Python's global ones are not:
what is drawn from them depends on everything that was drawn before, by whomever.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor


def devices(device: torch.device) -> list[torch.device]:
    """Devices whose generator is to be kept beside the host's."""
    return [device] if device.type == "cuda" else []


def states(device: torch.device) -> list[Tensor]:
    """Where torch's generators stand; whoever has drawn from one has moved it."""
    return [torch.get_rng_state(), *map(torch.cuda.get_rng_state, devices(device))]


def unkeyed_states() -> dict[str, object]:
    """Where the generators stand that nobody seeds by client and step, by whose they are."""
    of_numpy = np.random.get_state(legacy=False)  # noqa: NPY002 (whoever draws from it, it is not us)
    return {"NumPy": _plain(of_numpy), "Python": random.getstate()}


def _plain(state: Any) -> object:
    """Something that can be compared."""
    if isinstance(state, dict):
        return {key: _plain(value) for key, value in state.items()}
    return state.tobytes() if isinstance(state, np.ndarray) else state
