"""A GPU made of host memory whose streams do nothing before somebody waits for them.

Tensors of `There` are "on the device". What is asked of a stream lies in its queue and is done as late as the
rules of CUDA allow: when an event behind it is waited for by the host, or by another stream that goes on. So
numbers that are read too early, and buffers that are written too early, are the wrong ones, every time.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from swiftfl.workload import transfer


class FakeEvent:
    def __init__(self) -> None:
        self.stream: FakeStream | None = None
        self.done = True

    def record(self, stream: FakeStream) -> None:
        self.stream, self.done = stream, False
        stream.queue.append(self._reached)

    def _reached(self) -> None:
        self.done = True

    def synchronize(self) -> None:
        while not self.done:
            assert self.stream is not None
            self.stream.queue.popleft()()


class FakeStream:
    def __init__(self, device: object = None) -> None:
        self.queue: deque[Callable[[], None]] = deque()

    def wait_event(self, event: FakeEvent) -> None:
        self.queue.append(event.synchronize)

    def wait_stream(self, other: FakeStream) -> None:
        event = FakeEvent()
        event.record(other)
        self.wait_event(event)

    def synchronize(self) -> None:
        while self.queue:
            self.queue.popleft()()


class _Current(threading.local):
    def __init__(self) -> None:
        self.stream: FakeStream | None = None


class FakeCuda:
    """What stands in for torch.cuda; `default` is the stream of threads that have chosen no other."""

    def __init__(self) -> None:
        self.default = FakeStream()
        self._current = _Current()

    def current_stream(self, device: object = None) -> FakeStream:
        return self._current.stream or self.default

    @contextmanager
    def stream(self, stream: FakeStream) -> Iterator[None]:
        before, self._current.stream = self._current.stream, stream
        try:
            yield
        finally:
            self._current.stream = before


class There(torch.Tensor):
    """A tensor "on the device": copies into and from it go into the queue of the current stream."""

    cuda: FakeCuda

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is not torch.Tensor.copy_:
            return super().__torch_function__(func, types, args, kwargs or {})
        to, x = (each.as_subclass(torch.Tensor) for each in args)
        stream = cls.cuda.current_stream()
        stream.queue.append(lambda: to.copy_(x))
        if not (kwargs or {}).get("non_blocking"):
            stream.synchronize()
        return args[0]


def there(x: torch.Tensor) -> There:
    return x.as_subclass(There)


@contextmanager
def cuda_flags_kept() -> Iterator[None]:
    """What a run sets for CUDA in its process is put back."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.deterministic, cudnn.allow_tf32, matmul.allow_tf32
    try:
        yield
    finally:
        cudnn.deterministic, cudnn.allow_tf32, matmul.allow_tf32 = before


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """The fake in the place of what `transfer` uses of torch.cuda, with chunks of four numbers."""
    fake = FakeCuda()
    monkeypatch.setattr(There, "cuda", fake, raising=False)
    monkeypatch.setattr(torch.cuda, "Stream", FakeStream)
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "stream", fake.stream)
    monkeypatch.setattr(torch.cuda, "current_stream", fake.current_stream)
    monkeypatch.setattr(transfer, "_far", lambda x: isinstance(x, There))
    monkeypatch.setattr(transfer, "_pinned", lambda count: torch.empty(count, dtype=torch.uint8))
    monkeypatch.setattr(transfer, "_this_thread", transfer._OfThread())
    monkeypatch.setitem(transfer.CHUNK_BYTES, "cuda", 16)
    return fake
