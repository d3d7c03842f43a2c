"""Which device a client computes on: the GPUs of a machine are given to its clients in turn."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from swiftfl.errors import UserError, in_one_line


def devices_here() -> list[str]:
    """The GPUs that torch can use."""
    return [f"cuda:{k}" for k in range(torch.cuda.device_count())] if torch.cuda.is_available() else []


def device_of(name: str, number: int, devices: Sequence[str] | None = None) -> str:
    """The device of the client that is `number` on this machine, counted from 0.

    "auto" takes the GPUs in turn, so that with more clients than GPUs several share one, or the cpu where
    there is none. "cuda" does the same, and does not do without. Any other name is taken as it is.

    >>> [device_of("auto", k, ["cuda:0", "cuda:1"]) for k in range(3)]
    ['cuda:0', 'cuda:1', 'cuda:0']
    >>> device_of("auto", 5, [])
    'cpu'
    """
    if name not in ("auto", "cuda"):
        return name
    found = devices_here() if devices is None else devices
    if found:
        return found[number % len(found)]
    if name == "cuda":
        raise UserError("device 'cuda' cannot be used here: torch finds no GPU; leave it out, or say auto")
    return "cpu"


def usable(device: str) -> torch.device:
    """The device of this name, if torch can use it."""
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device {str(device)!r} cannot be used: {in_one_line(error)}") from error
    return found
