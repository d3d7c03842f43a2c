"""A node's transport, and who of its neighbours is there."""

from __future__ import annotations

import threading
from functools import partial

import numpy as np

from swiftfl.engines.live.inbox import Reason
from swiftfl.engines.live.journal import split
from swiftfl.federation.plan import NodePlan
from swiftfl.transports.codec import MakeCodec
from swiftfl.transports.messages.transport import MessageTransport
from swiftfl.transports.wire import Refusal, RefusedError, WireTerms
from swiftfl.transports.zenoh.link import ZenohLink
from swiftfl.transports.zenoh.presence import Presence
from swiftfl.transports.zenoh.wire import ZenohWire
from swiftfl.vector import Vector

_HEADER = 4096  # bytes: more than the header of any message
_REFUSALS: dict[Reason, Refusal] = {
    "not_finite": Refusal.NOT_FINITE,
    "wrong_length": Refusal.LAYOUT,
    "older_than_seen": Refusal.STALE,
}


class Connection:
    """The node is number 0, its neighbours are numbered as in `NodePlan.names`.

    A neighbour is there while its token is; one that comes back has another number of arrivals in `view`.
    """

    def __init__(self, plan: NodePlan, x0: Vector, codec: MakeCodec, incarnation: int) -> None:
        self.names = plan.names()
        self.changed = threading.Event()
        """Somebody has come or gone."""
        n = len(self.names) + 1
        most = _HEADER + max(codec().most_bytes(x0.size, x0.dtype), x0.size * np.dtype(np.float64).itemsize)
        link = ZenohLink(plan.link())
        terms = WireTerms(plan.federation, plan.layout, x0.size, str(x0.dtype), plan.codec, most)
        self.wire = ZenohWire(link, 0, plan.on_the_wire(), n, terms, plan.index, incarnation)
        near = [tuple(self.names), *[(0,) for _ in self.names]]
        self.transport = MessageTransport(
            self.wire, near, x0, codec, incarnation, empty=True, refusing=self.refuse, clocks_agree=False
        )
        self._refused: dict[int, tuple[int, Reason]] = {}
        self.transport.progress.gone.update(self.names)
        self._lock = threading.Lock()
        self._arrivals = dict.fromkeys(self.names, 0)
        self._here: set[int] = set()
        for k, name in self.names.items():
            link.listen(name, partial(self.wire.arrived, k))
        self._presence = Presence(link, self.names, self._appears)

    def _appears(self, k: int, there: bool) -> None:
        with self._lock:
            self.wire.forget(k)
            if there:
                self._arrivals[k] += 1
                self._here.add(k)
                self.transport.mark_back(k)
            else:
                self._here.discard(k)
                self.transport.mark_gone(k)
        self.changed.set()

    def refuse(self, k: int, why: str) -> None:
        """Something that came whole cannot be used."""
        self.wire.refusals.count(self.names[k], RefusedError(Refusal.UNDECODABLE, why))

    def refused(self, k: int, version: int, reason: Reason) -> None:
        """A model that came whole was not let in when it was looked at; each is counted once."""
        if self._refused.get(k) != (version, reason):
            self._refused[k] = version, reason
            said = RefusedError(_REFUSALS[reason], f"step {split(version)[1]}")
            self.wire.refusals.count(self.names[k], said)

    def view(self) -> dict[int, int]:
        """Who is there, and how often each has come."""
        with self._lock:
            return {k: self._arrivals[k] for k in sorted(self._here)}

    def close(self) -> None:
        self._presence.close()
        self.transport.close()
