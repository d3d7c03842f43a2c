"""Synchronous rounds: models that are all delivered, in order, each tagged with its round.

A client has two offers, in turn; it waits only for those who have not taken the one that it replaces.
A receiver has two buffers per neighbour, so that the next round arrives while this one is used.

Nobody is woken by a model that it does not wait for yet: a neighbour that is still computing looks by itself
when it comes to the round. Who has offered its own model does wait, and then its doorbell is rung. (Large
models, and those that travel in pieces, are better taken early, by the thread.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from swiftfl.transports.base import Finished, Lost
from swiftfl.transports.codec import Codec
from swiftfl.transports.messages.doorbell import CAME
from swiftfl.transports.messages.fragments import LEARNING
from swiftfl.transports.messages.message import Message
from swiftfl.transports.messages.progress import ProgressThread
from swiftfl.transports.messages.wire import LOST, OFFER
from swiftfl.vector import Vector

T = TypeVar("T")
log = logging.getLogger(__name__)


class Edge:
    """What arrives from one neighbour, in order."""

    def __init__(self, progress: ProgressThread, source: int, like: Vector, codec: Codec) -> None:
        self.progress, self.source = progress, source
        self.unheard = False  # our last offer was sent without ringing, and has not been taken
        self.learning = LEARNING  # our offers for which it is rung in any case
        self.ready: list[Message] = []
        self.refused = 0
        self._draining = False
        with progress.moving:
            for _ in range(2):
                self._receive(Message(like.size, like.dtype, codec))

    def _receive(self, message: Message) -> None:
        if self.source not in self.progress.gone:
            self.progress.receive(
                message.data, self.source, OFFER, lambda count: self._arrived(message, count)
            )

    def _arrived(self, message: Message, count: int) -> None:
        if self._draining:
            if count != LOST:
                self._receive(message)
        elif message.is_whole(count):
            self.ready.append(message)
            if self.unheard:  # so now it waits, and may sleep
                self.unheard = False
                self.progress.doorbell.ring(self.source, CAME)
        elif count != LOST:
            self.refused += 1
            self._receive(message)

    def drop_before(self, round: int) -> None:
        while self.ready and self.ready[0].round < round:
            self.give_back()

    def decoded(self) -> Vector:
        """The model that came first; one that cannot be decoded counts as none."""
        try:
            return self.ready[0].vector
        except ValueError as error:
            self.refused += 1
            log.warning("an offer of client %d cannot be decoded: %s", self.source, error)
            raise Lost(self.source) from None

    def give_back(self) -> None:
        """The oldest has been used: its buffer takes another."""
        with self.progress.moving:
            self._receive(self.ready.pop(0))

    def drain(self) -> None:
        """Nothing of this neighbour is used any more, but it must not wait until we have taken it."""
        with self.progress.moving:
            self._draining = True
            while self.ready:
                self._receive(self.ready.pop(0))


class MessageRounds:
    """Client i's part. `finished(k)` tells the last round that k offered to us, once k has finished."""

    def __init__(
        self,
        progress: ProgressThread,
        like: Vector,
        codec: Codec,
        finished: Callable[[int], int | None],
    ) -> None:
        self._progress, self._like, self._codec, self._finished = progress, like, codec, finished
        self._offers: list[Message] = []
        self._pins = [0, 0]
        self._turn = 0
        self._edges: dict[int, Edge] = {}
        self.offered: dict[int, int] = {}

    def listen(self, neighbours: Sequence[int]) -> None:
        """From the start: a client may finish before its own first round, when neighbours offer to it."""
        for k in neighbours:
            self._edge(k)

    def drain(self) -> None:
        """This client has finished: take and drop what neighbours still offer, so that they need not wait."""
        for edge in self._edges.values():
            edge.drain()

    def offer(self, x: Vector, round: int, to: Sequence[int]) -> None:
        if len(self._offers) < 2:
            self._offers.append(Message(self._like.size, self._like.dtype, self._codec))
        slot, self._turn = self._turn, 1 - self._turn
        self._progress.wait(lambda: self._pins[slot] == 0)
        message = self._offers[slot]
        message.fill(x, round=round)
        with self._progress.moving:
            for k in to:
                self.offered[k] = round
                if k not in self._progress.gone:
                    self._pins[slot] += 1
                    edge = self._edge(k)
                    edge.unheard = not (edge.ready or edge.learning or self._progress.better_early(k))
                    edge.learning = max(0, edge.learning - 1)
                    done = self._left(slot, edge)
                    self._progress.send(message.filled, k, OFFER, done, quiet=edge.unheard)

    def _left(self, slot: int, edge: Edge) -> Callable[[int], None]:
        def left(count: int) -> None:
            self._pins[slot] -= 1
            edge.unheard = False

        return left

    def _edge(self, neighbour: int) -> Edge:
        edge = self._edges.get(neighbour)
        if edge is None:
            edge = self._edges[neighbour] = Edge(self._progress, neighbour, self._like, self._codec)
        return edge

    def collect(self, neighbour: int, round: int, use: Callable[[Vector], T]) -> T:
        edge = self._edge(neighbour)
        self._progress.wait(lambda: self._settled(edge, round))
        if edge.ready and edge.ready[0].round == round:
            try:
                return use(edge.decoded())
            finally:
                edge.give_back()
        raise Finished(neighbour) if self._finished(neighbour) is not None else Lost(neighbour)

    def _settled(self, edge: Edge, round: int) -> bool:
        """The model of this round is here, or will never be."""
        edge.drop_before(round)
        if edge.ready or edge.source in self._progress.gone:
            return True
        last = self._finished(edge.source)
        return last is not None and last < round
