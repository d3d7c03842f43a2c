"""CCS as live clients run it themselves (`--ccs distributed`): each with its neighbours, by small messages.

An *epoch* is one run of CCS: the first before the first step, then one for every renewal. A client is told
its part (`Assignment`) and from then on looks for messages of its neighbours between its steps, without ever
waiting for them; until its own run is over it trains on under its old terms. Where clients meet in rounds,
both ends of an edge must change at the same round: when all have reported that they are done, the supervisor
names one (`Switch`).
"""

from __future__ import annotations

import logging
import math
import struct
import time
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from swiftfl.engines.assignment import Assignment
from swiftfl.engines.live.status import StatusTable
from swiftfl.engines.terms import Terms
from swiftfl.graph.messages import BYTES, KINDS, Outgoing, Selection, pack, unpack
from swiftfl.transports.base import SmallMessage, Transport
from swiftfl.vector import Weights

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Switch:
    """The weights of this epoch hold from this round on."""

    epoch: int
    from_round: int


News = Terms | Assignment | Switch
"""What a client is told by its engine."""


def digest_of(w: Weights) -> int:
    """A number that tells weights apart, to the last bit."""
    numbers = [w.own, *(value for k in sorted(w.of) for value in (float(k), w.of[k]))]
    return zlib.crc32(struct.pack(f"<{len(numbers)}d", *numbers))


class OwnSelection:
    """One client's runs of CCS, epoch after epoch; a new one replaces one that is still under way."""

    def __init__(self, i: int, transport: Transport, status: StatusTable, in_rounds: bool) -> None:
        self.i, self.transport, self.status, self.in_rounds = i, transport, status, in_rounds
        self.epoch = -1  # of the newest assignment
        self._selection: Selection | None = None  # under way
        self._scale = 1.0
        self._done: tuple[int, Terms] | None = None  # the last epoch that ended, and what it gave
        self._began = 0.0
        self._messages = int(status.value(i, "ccs_messages"))
        self._longest = status.value(i, "ccs_seconds")

    def take(self, news: Iterable[News] = ()) -> list[Terms]:
        """Take in what the engine says and what neighbours have sent; the terms that follow."""
        found: list[Terms] = []
        for each in news:
            if isinstance(each, Terms):
                found.append(each)
            elif isinstance(each, Assignment):
                self._begin(each)
            elif self._done is not None and self._done[0] == each.epoch:
                terms = self._done[1]
                found.append(Terms(terms.w, terms.scale, each.from_round))
        if self._selection is not None and self._advance(self._selection) and not self.in_rounds:
            found.append(self._done[1])  # type: ignore[index]  # it has just been set
        return found

    @property
    def under_way(self) -> bool:
        """Whether a run has begun and is not over."""
        return self._selection is not None

    @property
    def result(self) -> Terms | None:
        """The terms of the newest epoch, once its run is over."""
        return self._done[1] if self._done is not None and self._done[0] == self.epoch else None

    def _begin(self, assignment: Assignment) -> None:
        self.epoch, self._scale = assignment.epoch, assignment.scale
        self._began = time.perf_counter()
        self._selection = assignment.selection(self.i)
        self._send(self._selection.start())

    def _advance(self, selection: Selection) -> bool:
        """Let the run take what has come; whether that was its end."""
        for k in selection.neighbours:
            for message in self.transport.heard(k):
                ours = message.kind < len(KINDS) and message.epoch == selection.epoch
                if ours and math.isfinite(message.first + message.second):
                    # Messages may be taken in again: they say the same.
                    self._send(selection.receive(k, unpack(*message)))
        if selection.weights is None:
            return False
        self._selection = None
        self._done = selection.epoch, Terms(selection.weights, self._scale)
        self._longest = max(self._longest, time.perf_counter() - self._began)
        digest = digest_of(selection.weights)
        self.status.write_selection(self.i, selection.epoch, self._messages, self._longest, digest)
        _log.debug("client %d has its weights of epoch %d", self.i, selection.epoch)
        return True

    def _send(self, messages: Outgoing) -> None:
        for k, message in messages:
            self.transport.tell(k, SmallMessage(*pack(message)))
        self._messages += len(messages)


class Epochs:
    """The same as the supervisor sees it: which run is the newest, who has ended it, what all have cost."""

    def __init__(self, status: StatusTable) -> None:
        self.status = status
        self.epoch, self.runs = 0, 1  # the first is announced with the start
        self.settled = False  # whether everybody has ended the newest

    def announce(self, epoch: int) -> None:
        self.epoch, self.settled = epoch, False
        self.runs += 1

    def settle(self, clients: Iterable[int]) -> bool:
        """Whether all of these have just ended the newest run."""
        if self.settled or any(self.status.selected(i) != self.epoch for i in clients):
            return False
        self.settled = True
        return True

    def unlike(self, expected: Mapping[int, Weights]) -> list[int]:
        """The clients that have selected other weights than these in the newest run."""
        digests = {i: int(self.status.value(i, "ccs_digest")) for i in expected}
        return [i for i, w in expected.items() if digests[i] != digest_of(w)]

    def figures(self) -> dict[str, float]:
        """Runs, messages and bytes in all, and the seconds of the client that took longest for one run."""
        messages = int(sum(self.status.column("ccs_messages")))
        seconds = max(self.status.column("ccs_seconds"))
        return {"runs": self.runs, "messages": messages, "bytes": BYTES * messages, "seconds": seconds}
