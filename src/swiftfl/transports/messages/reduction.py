"""A weighted mean over everybody: all give to one client, which adds up in the clients' order and replies.

One client decides whose values count, so that all get the same mean though clients may be lost at any
moment. If that one is lost there is no mean: a run with a server or an all-reduce ends with it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from swiftfl.errors import UserError
from swiftfl.transports.messages.message import Message
from swiftfl.transports.messages.progress import ProgressThread
from swiftfl.transports.messages.wire import GIVE, LOST, MEAN
from swiftfl.vector import Vector

ROOT = 0


class MessageReduction:
    """Client i's part; `away(k)` tells that k will give nothing more."""

    def __init__(self, pump: ProgressThread, like: Vector, away: Callable[[int], bool]) -> None:
        self._pump, self._away = pump, away
        self._rank, self._n = pump.wire.rank, pump.wire.size
        self._given: dict[int, Message] = {}
        self._own, self._mean = Message(like.size, like.dtype), Message(like.size, like.dtype)
        self._pins = 0
        self._round = -1  # of the newest mean
        if self._rank == ROOT:
            with pump.moving:
                for k in range(1, self._n):
                    self._listen(k, Message(like.size, like.dtype))
            pump.begin.append(self._add_up)

    def mean(self, value: Vector, weight: float, round: int) -> Vector:
        """Give this value, and wait for the mean of all."""
        if self._rank != ROOT:
            return self._ask(value, weight, round)
        self._pump.wait(lambda: self._pins == 0)
        with self._pump.moving:
            self._own.fill(value, round=round, weight=weight)
            self._given[ROOT] = self._own
        self._pump.wait(lambda: self._round >= round)
        out: Vector = self._mean.vector.copy()
        return out

    def _ask(self, value: Vector, weight: float, round: int) -> Vector:
        sent: list[int] = []
        came: list[int] = []
        self._own.fill(value, round=round, weight=weight)
        with self._pump.moving:
            self._pump.receive(self._mean.data, ROOT, MEAN, came.append)
            self._pump.send(self._own.data, ROOT, GIVE, sent.append)
        self._pump.wait(lambda: bool(sent) and bool(came))
        if not self._mean.is_whole(came[0]) or self._mean.round != round:
            raise UserError(f"client {ROOT}, which adds up for all, was lost: the run cannot go on")
        out: Vector = self._mean.vector.copy()
        return out

    # --- at the root -----------------------------------------------------------------------------

    def _listen(self, k: int, parcel: Message) -> None:
        if k not in self._pump.gone:
            self._pump.receive(parcel.data, k, GIVE, lambda count: self._came(k, parcel, count))

    def _came(self, k: int, parcel: Message, count: int) -> None:
        if parcel.is_whole(count):
            self._given[k] = parcel
        elif count != LOST:
            self._listen(k, parcel)

    def _add_up(self) -> None:
        """When everybody who is still there has given, and the mean before was taken."""
        if not self._given or self._pins:
            return
        if not all(k in self._given or self._away(k) for k in range(self._n)):
            return
        round = min(parcel.round for parcel in self._given.values())
        members = [k for k in sorted(self._given) if self._given[k].round == round]
        total = np.zeros_like(self._mean.vector)
        for k in members:
            total += self._given[k].weight * self._given[k].vector
        weights = sum(self._given[k].weight for k in members)
        self._mean.fill((total / weights).astype(total.dtype, copy=False), round=round)
        self._round = round
        for k in members:
            self._answer(k, self._given.pop(k))

    def _answer(self, k: int, given: Message) -> None:
        if k == ROOT:
            return
        self._listen(k, given)
        if k not in self._pump.gone:
            self._pins += 1
            self._pump.send(self._mean.data, k, MEAN, self._taken)

    def _taken(self, count: int) -> None:
        self._pins -= 1
