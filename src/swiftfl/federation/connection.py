"""A node's transport, and who of its neighbours is there."""

from __future__ import annotations

import logging
import threading
from functools import partial

import numpy as np

from swiftfl.federation.plan import NodePlan
from swiftfl.transports.codec import MakeCodec
from swiftfl.transports.messages.transport import MessageTransport
from swiftfl.transports.wire import WireTerms
from swiftfl.transports.zenoh.link import ZenohLink
from swiftfl.transports.zenoh.wire import ZenohWire
from swiftfl.vector import Vector

_log = logging.getLogger(__name__)
_CONFIRM_EVERY = 1.0  # seconds
_HEADER = 4096  # bytes: more than the header of any message


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
        link = self._link = ZenohLink(plan.link())
        terms = WireTerms(plan.federation, plan.layout, x0.size, str(x0.dtype), plan.codec, most)
        self.wire = ZenohWire(link, 0, plan.on_the_wire(), n, terms, plan.index, incarnation)
        near = [tuple(self.names), *[(0,) for _ in self.names]]
        self.transport = MessageTransport(self.wire, near, x0, codec, incarnation, empty=True)
        self.transport.progress.gone.update(self.names)
        self._lock = threading.Lock()
        self._arrivals = dict.fromkeys(self.names, 0)
        self._here: set[int] = set()
        for k, name in self.names.items():
            link.listen(name, partial(self.wire.arrived, k))
        link.appear()
        for k, name in self.names.items():
            link.watch(name, partial(self._appears, k))
        self._closing = threading.Event()
        self._unannounced: set[int] = set()  # who is there though nobody has told us
        self._asking = threading.Thread(target=self._confirm, name="swiftfl-who-is-there", daemon=True)
        self._asking.start()

    def _confirm(self) -> None:
        """Ask, now and then, for those who are not there as far as we were told."""
        while not self._closing.wait(_CONFIRM_EVERY):
            for k in sorted((self.names.keys() - self.view().keys()) | self._unannounced):
                try:
                    there = self._link.is_there(self.names[k])
                except Exception as error:  # of a session that is closed meanwhile
                    _log.debug("cannot ask for %s: %s", self.names[k], error)
                    return
                if there != (k in self.view()):
                    (self._unannounced.add if there else self._unannounced.discard)(k)
                    self._appears(k, there)

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
        _log.info("%s is %s", self.names[k], "here" if there else "gone")
        self.changed.set()

    def view(self) -> dict[int, int]:
        """Who is there, and how often each has come."""
        with self._lock:
            return {k: self._arrivals[k] for k in sorted(self._here)}

    def close(self) -> None:
        self._closing.set()
        self._asking.join(2.0)
        self.transport.close()
