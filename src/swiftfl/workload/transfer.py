"""Numbers between host and device: in chunks, through pinned memory, on streams of their own.

On a device that shares the host's memory (the cpu) these are plain copies. On CUDA a chunk is copied
between pageable and pinned memory by the processor while the one before it is under way on the bus.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
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
    """Copy host numbers into a tensor."""
    source = view_of(x)
    if to.device.type != "cuda":
        to.copy_(source)
        return
    lane = _lane(to.device)
    lane.stream.wait_stream(torch.cuda.current_stream(to.device))
    flat = to.reshape(-1) if not to.is_contiguous() else to.view(-1)
    for pinned, part in lane.chunks(source):
        pinned.copy_(source.view(-1)[part])
        with torch.cuda.stream(lane.stream):
            flat[part].copy_(pinned, non_blocking=True)
        lane.sent()
    torch.cuda.current_stream(to.device).wait_stream(lane.stream)


def download(x: Tensor, to: Vector) -> None:
    """Copy the numbers of a tensor into host memory; they are there when this returns."""
    target = view_of(to)
    if x.device.type != "cuda":
        target.copy_(x)
        return
    lane = _lane(x.device)
    lane.stream.wait_stream(torch.cuda.current_stream(x.device))
    flat, host = x.detach().contiguous().view(-1), target.view(-1)
    waiting: list[tuple[Any, Tensor, slice]] = []
    for pinned, part in lane.chunks(flat):
        with torch.cuda.stream(lane.stream):
            pinned.copy_(flat[part], non_blocking=True)
        waiting.append((lane.sent(), pinned, part))
        if len(waiting) > 1:
            _arrived(*waiting.pop(0), host)
    for each in waiting:
        _arrived(*each, host)


def _arrived(event: Any, pinned: Tensor, part: slice, host: Tensor) -> None:
    event.synchronize()
    host[part].copy_(pinned)


class _Lane:
    """A stream and two pinned buffers of one thread for one device."""

    def __init__(self, device: torch.device) -> None:
        self.stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        bytes_ = CHUNK_BYTES["cuda"]
        self._buffers = [torch.empty(bytes_, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
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


_lanes = threading.local()


def _lane(device: torch.device) -> _Lane:
    lanes: dict[torch.device, _Lane] = _lanes.__dict__.setdefault("of", {})
    if device not in lanes:
        lanes[device] = _Lane(device)
    return lanes[device]
