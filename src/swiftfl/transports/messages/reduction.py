"""A weighted mean over everybody: all give to one client, which adds up in the clients' order and replies.

One client decides whose values count, so that all get the same mean though clients may be lost at any
moment. If that one is lost there is no mean: a run with a server or an all-reduce ends with it.
"""

from __future__ import annotations

from collections.abc import Callable

from swiftfl.errors import UserError
from swiftfl.transports.base import Mean
from swiftfl.transports.messages.message import Message
from swiftfl.transports.messages.progress import ProgressThread
from swiftfl.transports.messages.wire import GIVE, LOST, MEAN
from swiftfl.vector import Vector, copied, weighted_mean

ROOT = 0


class MessageReduction:
    """Client i's part; `away(k)` tells that k will give nothing more."""

    def __init__(self, progress: ProgressThread, like: Vector, away: Callable[[int], bool]) -> None:
        self._progress, self._away = progress, away
        self._rank, self._n = progress.wire.rank, progress.wire.size
        self._given: dict[int, Message] = {}
        self._own, self._mean = Message(like.size, like.dtype), Message(like.size, like.dtype)
        self._pins = 0
        self._round = -1  # of the newest mean
        if self._rank == ROOT:
            with progress.moving:
                for k in range(1, self._n):
                    self._listen(k, Message(like.size, like.dtype))
            progress.begin.append(self._add_up)

    def mean(self, value: Vector, weight: float, round: int) -> Mean:
        """Give this value, and wait for the mean of all."""
        if self._rank != ROOT:
            return self._ask(value, weight, round)
        self._progress.wait(lambda: self._pins == 0)
        with self._progress.moving:
            self._own.fill(value, round=round, weight=weight)
            self._given[ROOT] = self._own
        self._progress.wait(lambda: self._round >= round)
        return self._result()

    def _result(self) -> Mean:
        """Instead of a weight, the answer carries how many clients there were."""
        return Mean(copied(self._mean.vector), int(self._mean.weight))

    def _ask(self, value: Vector, weight: float, round: int) -> Mean:
        sent: list[int] = []
        came: list[int] = []
        self._own.fill(value, round=round, weight=weight)
        with self._progress.moving:
            self._progress.receive(self._mean.data, ROOT, MEAN, came.append)
            self._progress.send(self._own.filled, ROOT, GIVE, sent.append)
        self._progress.wait(lambda: bool(sent) and bool(came))
        if not self._mean.is_whole(came[0]) or self._mean.round != round:
            raise UserError(f"client {ROOT}, which adds up for all, was lost: the run cannot go on")
        return self._result()

    # --- at the root -----------------------------------------------------------------------------

    def _listen(self, k: int, message: Message) -> None:
        if k not in self._progress.gone:
            self._progress.receive(message.data, k, GIVE, lambda count: self._came(k, message, count))

    def _came(self, k: int, message: Message, count: int) -> None:
        if message.is_whole(count):
            self._given[k] = message
        elif count != LOST:
            self._listen(k, message)

    def _add_up(self) -> None:
        """When everybody who is still there has given, and the mean before was taken."""
        if not self._given or self._pins:
            return
        if not all(k in self._given or self._away(k) for k in range(self._n)):
            return
        round = min(message.round for message in self._given.values())
        members = [k for k in sorted(self._given) if self._given[k].round == round]
        mean = weighted_mean([(self._given[k].weight, self._given[k].vector) for k in members])
        self._mean.fill(mean, round=round, weight=len(members))
        self._round = round
        for k in members:
            self._answer(k, self._given.pop(k))

    def _answer(self, k: int, given: Message) -> None:
        if k == ROOT:
            return
        self._listen(k, given)
        if k not in self._progress.gone:
            self._pins += 1
            self._progress.send(self._mean.filled, k, MEAN, self._taken)

    def _taken(self, count: int) -> None:
        self._pins -= 1
