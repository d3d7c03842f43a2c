"""Who waits for whom: exchanges among neighbours, and reductions over everybody."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from swiftfl.engines.discard import contribution
from swiftfl.engines.saved import Pool, Saved, Tree, pack_number
from swiftfl.engines.simulation.record import ClientRecord
from swiftfl.vector import Vector, finite
from swiftfl.verbs import AllReduce, Exchange, Inbox


@dataclass(slots=True)
class Offer:
    """A client's model of one round, kept until everybody it is for has taken it.

    A model that is not finite is None: who would average with it does as if it were lost.
    """

    time: float
    x: Vector | None
    readers: set[int]


class Wait(NamedTuple):
    """A client that waits in an exchange: since when, in which round, for whose models."""

    time: float
    round: int
    partners: tuple[int, ...]


class Gathering(NamedTuple):
    """A round that everybody meets in: when the last client came, and how many messages it has so far."""

    latest: float
    messages: int


class Reduction(NamedTuple):
    """When each client arrived, the weighted mean (summed in the clients' order), and their verbs.

    `left_out` names the clients whose values are not finite: the mean is that of the others.
    """

    arrivals: dict[int, float]
    mean: Vector
    verbs: dict[int, AllReduce]
    left_out: list[int]


class ExchangeBarrier:
    """Exchanges: client i goes on when its partners' models of the same round exist.

    With `everyone`, it also waits until all clients have reached the round, as the authors' code does.
    """

    def __init__(self, records: Sequence[ClientRecord], everyone: bool, models: bool = True) -> None:
        self.everyone = everyone
        self._models = models  # are exchanged, so that a last one can stand for who has finished
        self._records = records
        self._offers: list[dict[int, Offer]] = [{} for _ in records]
        self._waiting: dict[int, Wait] = {}
        self._missing: dict[int, set[int]] = {}
        self._gathering: dict[int, Gathering] = {}  # of the newest round; with `everyone` only
        self._last = [0] * len(records)  # the round of each client's last arrival (its offer may be gone)
        self._from_round: dict[int, float] = {}  # of clients that do not take part in all rounds

    def arrive(self, i: int, verb: Exchange, time: float) -> list[int]:
        """Client i offers its model of a round; which clients can go on now."""
        round = verb.round
        self._offers[i] = {r: offer for r, offer in self._offers[i].items() if offer.readers}
        readers = {k for k in verb.receivers if self._takes_part(k, round)}
        self._last[i] = round
        self._offers[i][round] = Offer(time, verb.x if finite(verb.x) else None, readers)
        self._waiting[i] = Wait(time, round, tuple(verb.neighbours))
        # Whoever is not counted in this round yet finds nobody to wait for: the others may be past it.
        everyone = self.everyone and self._takes_part(i, round)
        needed = range(len(self._offers)) if everyone else verb.neighbours
        self._missing[i] = {
            k for k in needed if k != i and self._last[k] < round and self._takes_part(k, round)
        }
        if everyone:
            before = self._gathering.get(round, Gathering(time, 0))
            messages = before.messages + len(verb.receivers)
            self._gathering = {round: Gathering(max(time, before.latest), messages)}
            return self._without(i, round, list(self._waiting))
        return self._without(i, round, (*verb.receivers, i))

    def _takes_part(self, k: int, round: int) -> bool:
        return round >= self._from_round.get(k, 0)

    def leave(self, i: int, neighbours: Sequence[int]) -> list[int]:
        """Client i has gone: nobody waits for it any more; which clients can go on now."""
        self.exclude(i)
        for k in neighbours:
            for round in [r for r, offer in self._offers[k].items() if i in offer.readers]:
                self._drop_reader(k, round, i)
        return self._without(i, None, list(self._waiting) if self.everyone else neighbours)

    def exclude(self, i: int) -> None:
        """Client i takes part in no round until it is included again."""
        self._from_round[i] = math.inf

    def include(self, i: int, round: int) -> None:
        """A client that was excluded takes part from this round on."""
        if i in self._from_round:
            self._from_round[i] = min(self._from_round[i], round)

    def _without(self, i: int, round: int | None, waiters: Sequence[int]) -> list[int]:
        """Stop waiting for client i (in one round, or for ever); who waits for nobody any more."""
        free = []
        for k in waiters:
            if k in self._waiting and round in (None, self._waiting[k].round):
                self._missing[k].discard(i)
                if not self._missing[k]:
                    free.append(k)
        return free

    def take(self, i: int) -> tuple[Wait, dict[int, float], Inbox]:
        """Client i goes on: how it waited, when its partners arrived, and the models that it gets.

        A client that has finished is represented by its last model, one that was lost not at all.
        """
        wait = self._waiting.pop(i)
        del self._missing[i]
        arrived, inbox = {}, {}
        for k in wait.partners:
            offer = self._offers[k].get(wait.round)
            if offer is not None:
                arrived[k] = offer.time
                if offer.x is not None:
                    inbox[k] = offer.x
                self._drop_reader(k, wait.round, i)
            elif self._models and self._records[k].finished:
                inbox[k] = self._records[k].model
        return wait, arrived, inbox

    def reached(self, wait: Wait) -> float:
        """When the last of all clients reached the round of a wait for everyone."""
        gathering = self._gathering.get(wait.round)
        return wait.time if gathering is None else max(wait.time, gathering.latest)

    def messages(self, wait: Wait) -> int:
        """How many messages all clients send each other in the round of a wait for everyone."""
        gathering = self._gathering.get(wait.round)
        return len(wait.partners) if gathering is None else gathering.messages

    def forget(self, i: int) -> None:
        """Client i was lost in mid-exchange: what it offered and waited for is void."""
        self._offers[i].clear()
        self._last[i] = 0
        self._waiting.pop(i, None)
        self._missing.pop(i, None)

    def clients(self) -> set[int]:
        """Who waits in an exchange."""
        return set(self._waiting)

    def _drop_reader(self, k: int, round: int, reader: int) -> None:
        offer = self._offers[k][round]
        offer.readers.discard(reader)
        if not offer.readers:
            del self._offers[k][round]

    # --- checkpoints ---------------------------------------------------------------------------

    def state(self, pool: Pool) -> Tree:
        return {
            "offers": [
                [
                    [round, offer.time, None if offer.x is None else pool.put(offer.x), sorted(offer.readers)]
                    for round, offer in offers.items()
                ]
                for offers in self._offers
            ],
            "waiting": [
                [i, [wait.time, wait.round, list(wait.partners), sorted(self._missing[i])]]
                for i, wait in self._waiting.items()
            ],
            "gathering": [[round, *gathering] for round, gathering in self._gathering.items()],
            "last": list(self._last),
            "from_round": [[i, pack_number(round)] for i, round in self._from_round.items()],
        }

    def restore(self, saved: Saved) -> None:
        n = len(self._records)
        self._offers = [_read_offers(offers, n) for offers in saved["offers"].items(n)]
        self._waiting, self._missing = {}, {}
        for i, wait in saved["waiting"].pairs(n):
            time, round, partners, missing = wait.items(4)
            self._waiting[i] = Wait(time.number(0.0), round.integer(), tuple(partners.clients(n)))
            self._missing[i] = set(missing.clients(n))
        self._gathering = {}
        for item in saved["gathering"].items():
            newest, time, messages = item.items(3)
            self._gathering[newest.integer()] = Gathering(time.number(0.0), messages.integer())
        self._last = [item.integer() for item in saved["last"].items(n)]
        self._from_round = {i: round.any_number() for i, round in saved["from_round"].pairs(n)}


def _read_offers(saved: Saved, n: int) -> dict[int, Offer]:
    offers = {}
    for item in saved.items():
        round, time, x, readers = item.items(4)
        model = None if x.missing else x.message()
        offers[round.integer()] = Offer(time.number(0.0), model, set(readers.clients(n)))
    return offers


class ReduceBarrier:
    """Reductions: a round is complete when every active client has given its value."""

    def __init__(self) -> None:
        self._rounds: dict[int, dict[int, tuple[float, AllReduce]]] = {}

    def arrive(self, i: int, verb: AllReduce, time: float) -> None:
        self._rounds.setdefault(verb.round, {})[i] = (time, verb)

    def forget(self, i: int) -> None:
        """Client i was lost: its value does not count in rounds that are not complete."""
        for given in self._rounds.values():
            given.pop(i, None)
        self._rounds = {round: given for round, given in self._rounds.items() if given}

    def complete(self, active: int) -> list[int]:
        return [round for round, given in self._rounds.items() if len(given) >= active]

    def take(self, round: int) -> Reduction:
        """Complete a round."""
        given = self._rounds.pop(round)
        gifts = {i: contribution(given[i][1]) for i in sorted(given)}
        verbs = {i: verb for i, (_, verb) in given.items()}
        total = np.zeros_like(next(iter(verbs.values())).value)
        for value, weight in gifts.values():
            total += weight * value
        mean = (total / sum(weight for _, weight in gifts.values())).astype(total.dtype, copy=False)
        left_out = [i for i, (value, _) in gifts.items() if value is not verbs[i].value]
        return Reduction({i: time for i, (time, _) in given.items()}, mean, verbs, left_out)

    def clients(self) -> set[int]:
        """Who waits in a reduction."""
        return {i for given in self._rounds.values() for i in given}

    # The verbs themselves come back when the steps are run again (`World.restore`).

    def state(self) -> list[list[object]]:
        return [
            [round, [[i, time] for i, (time, _) in given.items()]] for round, given in self._rounds.items()
        ]

    def restore(self, saved: Saved, parked: Sequence[object]) -> None:
        self._rounds = {}
        for item in saved.items():
            round, given = item.items(2)
            number = round.integer()
            for i, time in given.pairs(len(parked)):
                verb = parked[i]
                if not (isinstance(verb, AllReduce) and verb.round == number):
                    given.fail(f"names client {i}, which takes part in no such reduction")
                self._rounds.setdefault(number, {})[i] = (time.number(0.0), verb)
