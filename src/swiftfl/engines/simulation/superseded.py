"""Models that nobody will fetch any more, given up before their publisher sends the next one.

A publisher keeps its older model until the newer one has arrived everywhere (`mailboxes.py`), often until it
publishes again. Where there are many models, that is a copy of all of them. But a receiver that goes on
only after the newer model has arrived will never see the older one. So all models are looked through
a few times per round of all clients, in a handful of NumPy calls: of a million clients nothing is in a cache,
and to look at each one's receivers whenever it goes on took an eighth of a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from swiftfl.engines.simulation.event_queue import EventQueue
from swiftfl.engines.simulation.mailboxes import Mailboxes
from swiftfl.engines.simulation.record import ClientRecord

PER_ROUND = 16
"""How often all models are looked through while each client makes a step: a sixteenth of a copy waits."""


class SupersededModels:
    """Gives up what no receiver can fetch, in virtual time, where all journeys are equally long.

    Not where the network changes: then others than the receivers of the start may fetch.
    """

    def __init__(self, records: Sequence[ClientRecord], mailboxes: Mailboxes, events: EventQueue) -> None:
        self._mailboxes, self._events = mailboxes, events
        self._neighbours = [record.client.neighbours for record in records]
        n = len(records)
        degrees = np.fromiter(map(len, self._neighbours), np.int64, n)
        self._senders = np.flatnonzero(degrees)  # `reduceat` knows no empty parts
        ends = np.cumsum(degrees)
        self._starts = (ends - degrees)[self._senders]
        receivers = chain.from_iterable(self._neighbours)
        self._receivers: npt.NDArray[np.int32] = np.fromiter(receivers, np.int32, int(ends[-1]))
        self._looks = np.empty(self._receivers.size)  # of the receivers: new memory each time costs more
        # Of each sender, when the model was sent on whose account older ones were given up.
        self._seen = np.full(self._senders.size, -np.inf)
        self._most = max(1, n // PER_ROUND)
        self._steps = 0

    def step(self) -> None:
        """A client goes on."""
        self._steps += 1
        if self._steps >= self._most:
            self._steps = 0
            self.give_up()

    def give_up(self) -> None:
        """What is superseded before any of those to whom it was sent goes on."""
        senders, mailboxes = self._senders, self._mailboxes
        if not senders.size:
            return
        np.take(np.frombuffer(self._events.times), self._receivers, out=self._looks, mode="clip")
        first = np.minimum.reduceat(self._looks, self._starts)
        sent = np.frombuffer(mailboxes.newest_sent)[senders]
        overdue = np.flatnonzero((sent > self._seen) & (sent <= first - mailboxes.transit))
        self._seen[overdue] = sent[overdue]
        mailboxes.forget_before(senders[overdue], first[overdue], self._neighbours)
