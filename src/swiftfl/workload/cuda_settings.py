"""What a run sets for CUDA in its process, and how the program that started it gets back what it had.

A setting is looked at only when a run is about to change it: on the cpu nothing is, and CUDA is not begun.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

import torch


class Kept(ExitStack):
    """What comes back when runs are over; and of each GPU the share of its memory that the program had."""

    def __init__(self) -> None:
        super().__init__()
        self.shares: dict[torch.device, float] = {}


_put_back: ContextVar[Kept | None] = ContextVar("put_back", default=None)


@contextmanager
def cuda_kept() -> Iterator[None]:
    """Runs set what CUDA may do in their process; what the program had comes back."""
    with Kept() as stack:
        token = _put_back.set(stack)
        try:
            yield
        finally:
            _put_back.reset(token)


def allow(deterministic: bool, tf32: bool) -> None:
    """Only cuDNN's algorithms that give the same bits again, and products of 19 bits; or not."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    stack = _put_back.get()
    if stack is not None:
        with contextlib.suppress(RuntimeError):  # it is mixed, and told by the settings below
            before = torch.get_float32_matmul_precision()
            stack.callback(torch.set_float32_matmul_precision, before)
        # Later callbacks come first. Setting `allow_tf32` changes what newer versions of torch say by
        # `fp32_precision`; where a program has used that, they refuse to tell the other.
        for place in (matmul, getattr(cudnn, "conv", None), getattr(cudnn, "rnn", None)):
            _keep(place, "fp32_precision")
        _keep(matmul, "allow_tf32")
        _keep(cudnn, "allow_tf32")
        _keep(cudnn, "deterministic")
    cudnn.deterministic = deterministic
    cudnn.allow_tf32 = matmul.allow_tf32 = tf32


def make_current(device: str) -> None:
    """Where code goes that says only `.cuda()`."""
    stack = _put_back.get()
    if stack is not None:
        before = torch.cuda.current_device()
        _when_over(stack, lambda: torch.cuda.set_device(before))
    torch.cuda.set_device(device)


def bound(device: str, share: float) -> None:
    """How much of a GPU's memory tensors of this process may take: no more than the program had allowed."""
    where, stack = torch.device(device), _put_back.get()
    if stack is not None:
        if where not in stack.shares:
            look: Callable[[Any], float] | None = getattr(torch.cuda, "get_per_process_memory_fraction", None)
            stack.shares[where] = before = 1.0 if look is None else look(where)  # older versions do not tell
            _when_over(stack, lambda: torch.cuda.set_per_process_memory_fraction(before, where))
        share = min(share, stack.shares[where])
    torch.cuda.set_per_process_memory_fraction(share, where)


def _keep(place: object, name: str) -> None:
    stack = _put_back.get()
    if stack is None or place is None:
        return
    with contextlib.suppress(AttributeError, RuntimeError):
        before = getattr(place, name)
        stack.callback(setattr, place, name, before)


def _when_over(stack: ExitStack, act: Callable[[], None]) -> None:
    def try_to() -> None:
        # A GPU that has failed takes nothing any more; the program is to be told why, not that.
        with contextlib.suppress(RuntimeError):
            act()

    stack.callback(try_to)
