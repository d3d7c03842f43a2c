"""The average of all models, without a server: sums go up the tree of a census, the mean comes down.

So it is exact but for rounding, and two models pass along each edge of the tree. If somebody is lost
meanwhile, nothing comes of it, and whoever wanted it begins again (`NodeMembership`). Every node takes part
with the model that it published last, and goes on training.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from swiftfl.graph.census import CensusResult
from swiftfl.transports.messages.message import Message
from swiftfl.transports.messages.transport import MessageTransport
from swiftfl.transports.messages.wire import TREE_MEAN, TREE_SUM
from swiftfl.vector import Vector, finite

_DAMAGED = -1
"""In place of an epoch."""


@dataclass(frozen=True)
class ConsensusModel:
    """The mean of the models of so many nodes."""

    epoch: int
    x: Vector
    nodes: int


class TreeMean:
    """One node's part; used by one thread, besides the one that moves messages."""

    def __init__(self, transport: MessageTransport) -> None:
        self._transport, self._progress = transport, transport.progress
        x, _ = transport.published
        self._size, self._dtype = x.size, x.dtype
        self._result: CensusResult | None = None
        self._sum: Vector | None = None
        self._sums: dict[int, Vector] = {}
        self._mean: Vector | None = None
        self._posted: set[tuple[int, int]] = set()  # receives that wait, by neighbour and channel
        # Neighbour, channel, epoch, vector; put there by the thread that moves messages.
        self._came: deque[tuple[int, int, int, Vector]] = deque()
        self.newest: ConsensusModel | None = None

    @property
    def under_way(self) -> int | None:
        """The epoch of a consensus that has begun and is not over."""
        return None if self._result is None else self._result.epoch

    def begin(self, result: CensusResult) -> None:
        """All have been counted: this node's model joins the sum."""
        self._result, self._sums, self._sum = result, {}, None
        self._own = self._transport.published[0].astype(np.float64)
        for k in result.children:
            self._receive(k, TREE_SUM)
        if result.parent is not None:
            self._receive(result.parent, TREE_MEAN)

    def advance(self) -> None:
        """Take in what has come, and pass on what can be."""
        result = self._result
        while self._came:
            k, tag, epoch, x = self._came.popleft()
            if result is None or epoch != result.epoch:
                if result is not None:
                    self._receive(k, tag)  # it was of an older one, or damaged
            elif tag == TREE_SUM:
                self._sums[k] = x
            else:
                self._finish(result, x)
        if result is None or self._sum is not None or not self._sums.keys() >= set(result.children):
            return
        self._sum = self._own + sum(self._sums[k] for k in result.children)
        if result.parent is None:
            self._finish(result, self._sum / result.n)
        else:
            self._send(result.parent, TREE_SUM, self._sum, result.epoch)

    def _finish(self, result: CensusResult, mean: Vector) -> None:
        for k in result.children:
            self._send(k, TREE_MEAN, mean, result.epoch)
        self._result = None
        self._sums = {}
        if finite(mean):
            self.newest = ConsensusModel(result.epoch, mean.astype(self._dtype), result.n)

    # --- messages --------------------------------------------------------------------------------

    def _send(self, k: int, tag: int, x: Vector, epoch: int) -> None:
        message = Message(self._size, np.float64)
        message.fill(x, version=epoch)
        with self._progress.moving:
            self._progress.send(message.filled, k, tag, lambda count: None)

    def _receive(self, k: int, tag: int) -> None:
        if (k, tag) in self._posted:
            return
        self._posted.add((k, tag))
        message = Message(self._size, np.float64)
        with self._progress.moving:
            self._progress.receive(message.data, k, tag, self._arrived(k, tag, message))
        self._progress.doorbell.wake()

    def _arrived(self, k: int, tag: int, message: Message) -> Callable[[int], None]:
        def arrived(count: int) -> None:
            self._posted.discard((k, tag))
            if message.is_whole(count):
                self._came.append((k, tag, message.version, message.vector.copy()))
            else:
                self._came.append((k, tag, _DAMAGED, np.empty(0)))

        return arrived
