"""Who waits for whom: exchanges among neighbours, and reductions over everybody."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from swiftfl.vector import Vector
from swiftfl.verbs import AllReduce, Exchange, Inbox


@dataclass
class Offer:
    """A client's model of one round, kept until everybody it is for has taken it."""

    time: float
    x: Vector
    readers: set[int]


class Wait(NamedTuple):
    """A client that waits in an exchange: since when, in which round, for whose models."""

    time: float
    round: int
    partners: tuple[int, ...]


class ExchangeBarrier:
    """Exchanges: client i goes on when its partners' models of the same round exist.

    With `everyone`, it also waits until all clients have reached the round, as the authors' code does.
    """

    def __init__(self, n: int, everyone: bool) -> None:
        self.everyone = everyone
        self.offers: list[dict[int, Offer]] = [{} for _ in range(n)]
        self.waiting: dict[int, Wait] = {}
        self.missing: dict[int, set[int]] = {}
        self.latest: dict[int, float] = {}
        self.last = [0] * n  # the round of each client's last arrival (its offer may be gone by then)
        self.gone: dict[int, float] = {}  # client -> the round from which it takes part (again)

    def arrive(self, i: int, verb: Exchange, time: float) -> list[int]:
        """Client i offers its model of a round; which clients can go on now."""
        round = verb.round
        self.offers[i] = {r: offer for r, offer in self.offers[i].items() if offer.readers}
        readers = {k for k in verb.neighbours if self.takes_part(k, round)}
        self.last[i] = round
        self.offers[i][round] = Offer(time, verb.x, readers)
        self.waiting[i] = Wait(time, round, tuple(verb.neighbours))
        # Whoever is not counted in this round yet finds nobody to wait for: the others may be past it.
        everyone = self.everyone and self.takes_part(i, round)
        needed = range(len(self.offers)) if everyone else verb.neighbours
        self.missing[i] = {k for k in needed if k != i and self.last[k] < round and self.takes_part(k, round)}
        if everyone:
            self.latest = {round: max(time, self.latest.get(round, time))}
            return self._without(i, round, list(self.waiting))
        return self._without(i, round, (*verb.neighbours, i))

    def takes_part(self, k: int, round: int) -> bool:
        return round >= self.gone.get(k, 0)

    def leave(self, i: int, neighbours: Sequence[int]) -> list[int]:
        """Client i has gone: nobody waits for it any more; which clients can go on now."""
        self.gone[i] = math.inf
        for k in neighbours:
            for round in [r for r, offer in self.offers[k].items() if i in offer.readers]:
                self._drop_reader(k, round, i)
        return self._without(i, None, list(self.waiting) if self.everyone else neighbours)

    def _without(self, i: int, round: int | None, waiters: Sequence[int]) -> list[int]:
        """Stop waiting for client i (in one round, or for ever); who waits for nobody any more."""
        free = []
        for k in waiters:
            if k in self.waiting and round in (None, self.waiting[k].round):
                self.missing[k].discard(i)
                if not self.missing[k]:
                    free.append(k)
        return free

    def take(
        self, i: int, models: Sequence[Vector], finished: Sequence[bool]
    ) -> tuple[Wait, dict[int, float], Inbox]:
        """Client i goes on: how it waited, when its partners arrived, and the models that it gets.

        A client that has finished is represented by its last model, one that was lost not at all.
        """
        wait = self.waiting.pop(i)
        del self.missing[i]
        arrived, inbox = {}, {}
        for k in wait.partners:
            offer = self.offers[k].get(wait.round)
            if offer is not None:
                arrived[k], inbox[k] = offer.time, offer.x
                self._drop_reader(k, wait.round, i)
            elif finished[k]:
                inbox[k] = models[k]
        return wait, arrived, inbox

    def reached(self, wait: Wait) -> float:
        """When the last of all clients reached the round of a wait for everyone."""
        return max(wait.time, self.latest.get(wait.round, wait.time)) if self.everyone else wait.time

    def forget(self, i: int) -> None:
        """Client i was lost in mid-exchange: what it offered and waited for is void."""
        self.offers[i].clear()
        self.last[i] = 0
        self.waiting.pop(i, None)
        self.missing.pop(i, None)

    def _drop_reader(self, k: int, round: int, reader: int) -> None:
        offer = self.offers[k][round]
        offer.readers.discard(reader)
        if not offer.readers:
            del self.offers[k][round]


@dataclass
class ReduceBarrier:
    """Reductions: a round is complete when every active client has given its value."""

    rounds: dict[int, dict[int, tuple[float, AllReduce]]] = field(default_factory=dict)

    def arrive(self, i: int, verb: AllReduce, time: float) -> None:
        self.rounds.setdefault(verb.round, {})[i] = (time, verb)

    def forget(self, i: int) -> None:
        """Client i was lost: its value does not count in rounds that are not complete."""
        for given in self.rounds.values():
            given.pop(i, None)
        self.rounds = {round: given for round, given in self.rounds.items() if given}

    def complete(self, active: int) -> list[int]:
        return [round for round, given in self.rounds.items() if len(given) >= active]

    def take(self, round: int) -> tuple[dict[int, float], Vector, bool]:
        """When each client arrived, the weighted mean (summed in the clients' order), and how."""
        given = self.rounds.pop(round)
        verbs = [given[i][1] for i in sorted(given)]
        total = np.zeros_like(verbs[0].value)
        for verb in verbs:
            total += verb.weight * verb.value
        mean = (total / sum(verb.weight for verb in verbs)).astype(total.dtype, copy=False)
        return {i: time for i, (time, _) in given.items()}, mean, verbs[0].by_server
