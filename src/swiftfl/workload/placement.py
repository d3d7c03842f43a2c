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


_FOR_CLIENTS = 0.95  # of a GPU's memory; the rest is what every process needs besides its tensors


def fair_share(device: str, everybody: Sequence[str]) -> float:
    """The share of its device's memory that a process may use; `everybody` are the devices of all processes.

    >>> fair_share("cuda:0", ["cuda:0", "cuda:1", "cuda:0"])
    0.475
    >>> fair_share("cuda:1", ["cuda:0", "cuda:1", "cuda:0"])
    1.0
    """
    count = sum(1 for other in everybody if _index(other) == _index(device))
    return 1.0 if count <= 1 else _FOR_CLIENTS / count


def _index(device: str) -> str:
    """`cuda` is torch's current device, which is the first one."""
    return "cuda:0" if device == "cuda" else device


def bound_memory(device: str, share: float) -> None:
    """Let this process use no more than a share of a GPU's memory: who wants more fails, and nobody else."""
    if share < 1.0:
        torch.cuda.set_per_process_memory_fraction(share, torch.device(device))


def usable(device: str) -> torch.device:
    """The device of this name, if torch can use it."""
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device {str(device)!r} cannot be used: {in_one_line(error)}") from error
    return found
