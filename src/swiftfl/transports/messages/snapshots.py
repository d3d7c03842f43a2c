"""Models for whoever evaluates: on request, each client sends one to the root, and nobody waits for it.

The root keeps one buffer per client, in memory that a child process can read. Nothing is received into it
until the next request, so that the models of a snapshot stay as they are while they are evaluated.
"""

from __future__ import annotations

import mmap

import numpy as np

from swiftfl.transports.messages.message import Message
from swiftfl.transports.messages.transport import MessageTransport
from swiftfl.transports.messages.wire import SHOWN
from swiftfl.vector import Vector

_ALIGN = 4096


class Snapshots:
    """The root's side. `memory` can be made before the transport, and be inherited by a fork."""

    def __init__(self, memory: SnapshotMemory) -> None:
        self._messages = memory.messages
        self._under_way: set[int] = set()
        self._come: set[int] = set()

    def request(self, transport: MessageTransport) -> None:
        """Take the next model that each client sends, and the root's own."""
        progress = transport.progress
        self._come = set()
        transport.shown = None
        with progress.moving:
            for k, message in enumerate(self._messages):
                if k != transport.i and k not in self._under_way and k not in progress.gone:
                    self._under_way.add(k)
                    progress.receive(message.data, k, SHOWN, lambda count, k=k: self._arrived(k, count))  # type: ignore[misc]

    def _arrived(self, k: int, count: int) -> None:
        self._under_way.discard(k)
        if self._messages[k].is_whole(count):
            self._come.add(k)

    def come(self, transport: MessageTransport) -> list[int]:
        """Whose models are here since the last request."""
        own = transport.shown
        if own is not None and transport.i not in self._come:
            self._messages[transport.i].fill(own)
            self._come.add(transport.i)
        return sorted(self._come)


class SnapshotMemory:
    """One buffer per client, shared with processes that are forked later."""

    def __init__(self, n: int, like: Vector) -> None:
        size = -(-(64 + like.nbytes) // _ALIGN) * _ALIGN
        memory = np.frombuffer(mmap.mmap(-1, n * size), np.uint8)
        self.messages = [
            Message(like.size, like.dtype, data=memory[k * size : (k + 1) * size]) for k in range(n)
        ]

    def models(self, clients: list[int]) -> list[Vector]:
        """The models of these clients, in place."""
        return [self.messages[k].vector for k in clients]
