"""Which device a client computes on: the GPUs of a machine are given to its clients in turn."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from swiftfl.errors import UserError, in_one_line
from swiftfl.workload.cuda_settings import bound


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


_FOR_CLIENTS = 0.95  # of a GPU's memory: the rest is for whoever else draws on it, such as a screen
_CONTEXT_BYTES = 500 << 20  # that a process takes besides its tensors, for CUDA and its libraries; assumed


def sharing(device: str, everybody: Sequence[str]) -> int:
    """How many processes are on this device; `everybody` are the devices of all processes.

    >>> sharing("cuda:0", ["cuda:0", "cuda:1", "cuda"])
    2
    """
    return sum(1 for other in everybody if _index(other) == _index(device))


def fair_share(count: int, total: int) -> float:
    """The share of a GPU's memory that the tensors of one of `count` processes on it may take.

    >>> fair_share(1, 16 << 30), fair_share(4, 16 << 30) < 0.95 / 4
    (1.0, True)
    """
    if count <= 1:
        return 1.0
    least = 0.1 / count  # of a GPU that has no room for so many: who comes too late is told by torch
    return max(least, _FOR_CLIENTS / count - _CONTEXT_BYTES / total)


def _index(device: str) -> str:
    """`cuda` is torch's current device, which is the first one."""
    return "cuda:0" if device == "cuda" else device


def bound_memory(device: str, count: int) -> None:
    """Let this process use no more than its share of a GPU's memory: who wants more fails, nobody else.

    Who is alone there may take all of it, whatever an earlier run of this process could.
    """
    total = torch.cuda.get_device_properties(torch.device(device)).total_memory if count > 1 else 0
    bound(device, fair_share(count, total))


def usable(device: str) -> torch.device:
    """The device of this name, if torch can use it."""
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device {str(device)!r} cannot be used: {in_one_line(error)}") from error
    return found
