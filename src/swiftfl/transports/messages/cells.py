"""AD-PSGD's model cells. A client sends its cell to a neighbour, whose thread moves its own cell half
of the way and replies with the step that it took; the asker takes the opposite step.

Nobody holds a lock while it waits, so askers cannot deadlock however they ask in circles. Between asking
and the reply the asker's cell may be moved by others: both take the same step in opposite directions,
so the sum of all cells stays what it was, which is what averaging is for.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from swiftfl.transports.base import Lost
from swiftfl.transports.messages.message import Message
from swiftfl.transports.messages.progress import ProgressThread
from swiftfl.transports.messages.wire import ANSWER, ASK, LOST
from swiftfl.vector import Statistics, Vector, advance, copied, meet, retreat


class RemoteCells:
    """Client i's cell, and the requests of its neighbours, which are taken from the first use on."""

    def __init__(self, progress: ProgressThread, x0: Vector, neighbours: Sequence[int]) -> None:
        self._progress = progress
        self._x = copied(x0)
        self._lock = threading.Lock()
        self._own, self._reply = Message(x0.size, x0.dtype), Message(x0.size, x0.dtype)
        self._asking = False
        self.answers = 0
        with progress.moving:
            for k in neighbours:
                self._listen(k, Message(x0.size, x0.dtype))

    # --- for neighbours, by the thread -----------------------------------------------------------

    def _listen(self, k: int, message: Message) -> None:
        if k not in self._progress.gone:
            self._progress.receive(message.data, k, ASK, lambda count: self._asked(k, message, count))

    def _asked(self, k: int, message: Message, count: int) -> None:
        """Meet half way; the buffer of the question carries the answer."""
        if count == LOST:
            return
        if not message.is_whole(count):
            self._listen(k, message)
            return
        with self._lock:
            self._x, step = meet(self._x, message.vector)
            self.answers += 1
        message.fill(step, version=message.version)
        self._progress.send(message.filled, k, ANSWER, lambda count: self._listen(k, message))

    # --- for the client --------------------------------------------------------------------------

    def load(self) -> Vector:
        with self._lock:
            return copied(self._x)

    def set(self, x: Vector) -> None:
        with self._lock:
            self._x = copied(x)

    def add(self, move: Vector, statistics: Statistics | None) -> Vector:
        with self._lock:
            self._x = advance(self._x, move, statistics)
            return copied(self._x)

    def average_with(self, k: int) -> Vector:
        progress, own, reply = self._progress, self._own, self._reply
        progress.wait(lambda: not self._asking)
        if k in progress.gone:
            raise Lost(k)
        answers: list[int] = []
        with progress.moving:
            self._asking = True
            own.fill(self._x)  # whose numbers never change: others put a new one in its place
            progress.receive(reply.data, k, ANSWER, answers.append)
            progress.send(own.filled, k, ASK, self._sent)
        progress.wait(lambda: bool(answers))
        if answers[0] == LOST or not reply.is_whole(answers[0]):
            raise Lost(k)
        with self._lock:
            self._x = retreat(self._x, reply.vector)
            return copied(self._x)

    def _sent(self, count: int) -> None:
        self._asking = False
