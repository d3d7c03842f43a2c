"""Numbers between host and device: in chunks, through pinned memory, on streams of their own.

On a device that shares the host's memory (the cpu) these are plain copies. On CUDA a chunk is copied
between pageable and pinned memory by the processor while the one before it is under way on the bus.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from swiftfl.vector import Vector

CHUNK_BYTES = {"cpu": 1 << 30, "cuda": 4 << 20}
"""How much is taken at a time, by the type of device; others take the cpu's."""


class _Alias:
    """The memory of an array that may not be written to, as one that may: torch knows no other tensors."""

    def __init__(self, x: Vector) -> None:
        about = x.__array_interface__
        self.owner = x
        self.__array_interface__ = {**about, "data": (about["data"][0], False)}


def view_of(x: Vector) -> Tensor:
    """A tensor in the memory of a NumPy vector; who made the vector sees to it that nobody writes there."""
    return torch.from_numpy(x if x.flags.writeable else np.asarray(_Alias(x)))


def chunk_of(kind: str, itemsize: int) -> int:
    """Numbers in a chunk."""
    return max(1, CHUNK_BYTES.get(kind, CHUNK_BYTES["cpu"]) // itemsize)


def upload(x: Vector, to: Tensor) -> None:
    """Copy host numbers into a tensor; what this thread asks of its device afterwards finds them there."""
    source = view_of(x)
    if not _far(to) or source.shape != to.shape or not (source.is_contiguous() and to.is_contiguous()):
        to.copy_(source)
        return
    lane, flat, host = _lane(to.device), to.view(-1), source.view(-1)
    here = torch.cuda.current_stream(to.device)
    lane.stream.wait_stream(here)
    for pinned, part in lane.chunks(flat):
        pinned.copy_(host[part])
        with torch.cuda.stream(lane.stream):
            flat[part].copy_(pinned, non_blocking=True)
        lane.sent()
    here.wait_stream(lane.stream)  # so that the memory is not given to others before, either


def download(x: Tensor, to: Vector) -> None:
    """Copy the numbers of a tensor into host memory; they are there when this returns."""
    target = view_of(to)
    if not _far(x) or target.shape != x.shape or not target.is_contiguous():
        target.copy_(x)
        return
    lane, host, known = _lane(x.device), target.view(-1), _this_thread.known
    if known is None:
        lane.stream.wait_stream(torch.cuda.current_stream(x.device))
    else:
        lane.stream.wait_event(known)
    with torch.cuda.stream(lane.stream):
        flat = x.detach().contiguous().view(-1)
    waiting: list[tuple[Any, Tensor, slice]] = []
    for pinned, part in lane.chunks(flat):
        with torch.cuda.stream(lane.stream):
            pinned.copy_(flat[part], non_blocking=True)
        waiting.append((lane.sent(), pinned, part))
        if len(waiting) > 1:
            _arrived(*waiting.pop(0), host)
    for each in waiting:
        _arrived(*each, host)


def moment(x: object) -> Any:
    """When all that this thread has asked of a tensor's device so far is done; None if it is done already."""
    tensor = getattr(x, "tensor", None)
    if tensor is None or not _far(tensor):
        return None
    event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(tensor.device))
    return event


@contextmanager
def known_since(event: Any) -> Iterator[None]:
    """Let downloads of this thread begin at a `moment` of another thread, not after what that asks meanwhile.

    Another thread's stream is not this one's; and where it is, the next gradient may stand in it already.
    """
    before, _this_thread.known = _this_thread.known, event
    try:
        yield
    finally:
        _this_thread.known = before


def _far(x: Tensor) -> bool:
    """Whether the numbers are in a memory that the processor does not see."""
    return x.device.type == "cuda"


def _arrived(event: Any, pinned: Tensor, part: slice, host: Tensor) -> None:
    event.synchronize()
    host[part].copy_(pinned)


class _Lane:
    """A stream and two pinned buffers of one thread for one device."""

    def __init__(self, device: torch.device) -> None:
        self.stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._buffers = [_pinned(CHUNK_BYTES["cuda"]) for _ in range(2)]
        self._events: list[Any] = [None, None]
        self._turn = 0

    def chunks(self, like: Tensor) -> Iterator[tuple[Tensor, slice]]:
        """Pinned memory for each chunk, when what was in it has left."""
        size = chunk_of("cuda", like.element_size())
        for start in range(0, like.numel(), size):
            part = slice(start, min(start + size, like.numel()))
            event = self._events[self._turn]
            if event is not None:
                event.synchronize()
            buffer = self._buffers[self._turn].view(like.dtype)
            yield buffer[: part.stop - part.start], part

    def sent(self) -> Any:
        """The copy of this chunk was asked for; the next one takes the other buffer."""
        event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(self.stream)
        self._events[self._turn] = event
        self._turn = 1 - self._turn
        return event


def _pinned(count: int) -> Tensor:
    return torch.empty(count, dtype=torch.uint8, pin_memory=True)


class _OfThread(threading.local):
    """Lanes are a thread's own: nobody else writes into their buffers."""

    def __init__(self) -> None:
        self.lanes: dict[torch.device, _Lane] = {}
        self.known: Any = None  # an event after which what is brought down is computed


_this_thread = _OfThread()


def _lane(device: torch.device) -> _Lane:
    lanes = _this_thread.lanes
    if device not in lanes:
        lanes[device] = _Lane(device)
    return lanes[device]
