"""Clients that wait for others: when an exchange or a reduction lets them go on, and what it costs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from swiftfl.costs import Costs
from swiftfl.engines.simulation.barriers import ExchangeBarrier, ReduceBarrier
from swiftfl.engines.simulation.event_queue import EventQueue
from swiftfl.engines.simulation.mailboxes import Links
from swiftfl.engines.simulation.record import Answer, ClientRecord
from swiftfl.engines.simulation.senders import Senders
from swiftfl.verbs import AllReduce, Exchange


class Meetings:
    """Serves the verbs of algorithms in rounds; `now` is the time of the event that is being carried out.

    `size` is that of a message which no codec touches, `model_size` that of a model.
    """

    def __init__(
        self,
        records: Sequence[ClientRecord],
        costs: Costs,
        events: EventQueue,
        links: Links,
        senders: Senders,
        size: int,
        model_size: int,
        everyone: bool,
        models: bool,
    ) -> None:
        self._records, self._costs, self._events, self._links = records, costs, events, links
        self._senders, self._size, self._model_size = senders, size, model_size
        self.exchanges = ExchangeBarrier(records, everyone, models)
        self.reductions = ReduceBarrier()
        self._shared = everyone and costs.shared_bandwidth is not None

    def exchange(self, record: ClientRecord, verb: Exchange, now: float) -> None:
        if not self._shared:
            record.clock.communicate(self._costs.send * len(verb.receivers))
        x, size = self._senders.send(record.index, verb.x)
        record.traffic.exchange(verb, self._costs.message(size))
        sent = verb if x is verb.x else replace(verb, x=x)
        for k in self.exchanges.arrive(record.index, sent, record.clock.now):
            self._met(self._records[k], now)

    def leave(self, i: int, waiters: Sequence[int], now: float) -> None:
        """Client i has gone or has finished: those who wait only for it go on."""
        for k in self.exchanges.leave(i, waiters):
            self._met(self._records[k], now)

    def _met(self, record: ClientRecord, now: float) -> None:
        """All models that a client waits for exist: it goes on when the last one has arrived."""
        i, costs, size = record.index, self._costs, self._model_size
        wait, arrived, inbox = self.exchanges.take(i)
        if self._links.down:
            inbox = {k: x for k, x in inbox.items() if self._links.passes(i, k)}
            arrived = {k: time for k, time in arrived.items() if self._links.passes(i, k)}
        latest = max([self.exchanges.reached(wait), *arrived.values()])
        ready = max([latest, *(time + self._journey(k, i, wait.round) for k, time in arrived.items())])
        if self._shared:
            # All end together: what a client then spends on averaging is part of the exchange.
            together = latest + costs.shared_exchange(self.exchanges.messages(wait), size)
            ready = max(ready, together - costs.mix * len(inbox))
        if any(k not in inbox and k not in arrived for k in wait.partners):
            # A partner that was lost is waited for until that is noticed, which is now.
            ready, latest = max(ready, now), max(latest, now)
        self._answer(record, inbox, waited=max(0.0, latest - wait.time), until=ready)

    def _journey(self, sender: int, receiver: int, round: int) -> float:
        costs = self._costs
        return costs.transit(sender, receiver, self._model_size) + costs.delay(sender, receiver, round)

    def reduce(self, clients: int, earliest: float) -> list[int]:
        """Serve the reductions to which so many clients, all that are thought to be there, have given values.

        They begin no earlier than said; whose values were not finite.
        """
        all_left_out: list[int] = []
        for round in self.reductions.complete(clients):
            arrivals, mean, verbs, left_out = self.reductions.take(round)
            all_left_out += left_out
            latest = max(*arrivals.values(), earliest)
            ready = latest + self._reduction_cost(list(verbs.values()))
            for i, own in arrivals.items():
                self._records[i].traffic.all_reduce(verbs[i], len(arrivals), self._size)
                self._answer(self._records[i], mean, waited=latest - own, until=ready)
        return all_left_out

    def _reduction_cost(self, verbs: Sequence[AllReduce]) -> float:
        clients = len(verbs)
        if not verbs[0].by_server:
            return self._costs.all_reduce(clients, self._size)
        return self._costs.server(clients, sum(verb.weight > 0 for verb in verbs), self._size)

    def give(self, record: ClientRecord, verb: AllReduce) -> None:
        """A client's value of a reduction, which `reduce` serves when it is complete."""
        self.reductions.arrive(record.index, verb, record.clock.now)

    def forget(self, i: int) -> None:
        """Client i was lost: what it offered, gave and waited for is void."""
        self.exchanges.forget(i)
        self.reductions.forget(i)

    def _answer(self, record: ClientRecord, reply: object, waited: float, until: float) -> None:
        """A client has its reply at time `until`; of the time since it asked, `waited` was waiting.

        One that fell asleep meanwhile sleeps first.
        """
        record.answer = Answer(reply, waited, until - record.clock.now - waited)
        self._events.schedule(record.index, until + record.sleep_due)
