"""The wire of the channels of `messages/` over zenoh: sends that are over when the other end has taken them.

So at most one model is under way to a neighbour, however slow its link is; the newest waits, and replaces
what waits. Each neighbour has a thread of its own, because sending waits while a link takes no more: a
neighbour that is slow or stopped delays nobody else. Urgent messages pass between the chunks of large ones.
Whatever arrives is validated by `transports/wire.py` before memory is taken for it.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from swiftfl.transports.codec import Bytes
from swiftfl.transports.messages.wire import GARBLED, MODEL, Bell, Transfer
from swiftfl.transports.wire import Incoming, Refusal, Refusals, RefusedError, WireTerms
from swiftfl.transports.zenoh.bell import HouseBell
from swiftfl.transports.zenoh.frames import AGAIN, PROBE, TAKEN, envelope, opened
from swiftfl.transports.zenoh.outgoing import Half, NeighbourLink, Outgoing, OutgoingTerms

_HELD = 4  # messages of one sender and kind that may wait for a receive
_DROPPED = 64  # of one sender, to remember


@dataclass(frozen=True)
class WireNeighbour:
    """Whom messages go to and come from: its name on the link, and its number in headers."""

    name: str
    number: int


@dataclass
class Arrivals:
    """What one neighbour has sent, by the tag of its channel."""

    incoming: dict[int, Incoming] = field(default_factory=dict)
    posted: defaultdict[int, deque[Half]] = field(default_factory=lambda: defaultdict(deque))
    held: defaultdict[int, deque[tuple[int, Bytes]]] = field(default_factory=lambda: defaultdict(deque))
    newest: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))  # that is here, whole
    parts: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))  # that have come
    probed: dict[int, tuple[int, int]] = field(default_factory=dict)  # message and parts, at the last probe
    dropped: deque[int] = field(default_factory=lambda: deque(maxlen=_DROPPED))  # that came, and nobody got


class ZenohWire:
    """One end's plug. `rank` and the keys of `neighbours` are this end's numbers; `own` is the one by which
    others know it, in headers. `terms` say what every message looks like, and how large it may be."""

    def __init__(
        self,
        link: NeighbourLink,
        rank: int,
        neighbours: Mapping[int, WireNeighbour],
        size: int,
        terms: WireTerms,
        own: int,
        incarnation: int = 0,
    ) -> None:
        self.rank, self.size, self._link, self._terms = rank, size, link, terms
        self._neighbours = dict(neighbours)
        self._lock = threading.Lock()
        self._edges = {k: Arrivals() for k in neighbours}
        self.refusals = Refusals()
        self.doorbell: Bell = HouseBell(self.close)
        said = OutgoingTerms(terms, own, incarnation)
        self._out = {k: Outgoing(link, each.name, said) for k, each in neighbours.items()}

    # --- the wire --------------------------------------------------------------------------------

    def send(self, data: Bytes, to: int, tag: int) -> Transfer:
        half = Half(data, tag)
        self._out[to].send(half)
        return half

    def receive(self, data: Bytes, source: int, tag: int) -> Transfer:
        half, edge = Half(data, tag), self._edges[source]
        with self._lock:
            if edge.held[tag]:
                self._deliver(source, half, *edge.held[tag].popleft())
            else:
                edge.posted[tag].append(half)
        return half

    def completed(self, transfers: Sequence[Transfer]) -> list[tuple[int, int]]:
        halves = [half for half in transfers if isinstance(half, Half)]
        return [(at, half.count) for at, half in enumerate(halves) if half.count is not None]

    # --- what the link brings, in threads of its own -------------------------------------------------

    def arrived(self, source: int, data: bytes) -> None:
        """Something that this neighbour has sent."""
        try:
            with self._lock:
                over = self._take(source, *opened(data))
        except RefusedError as error:
            self.refusals.count(self._neighbours[source].name, error)
            return
        if over:
            self.doorbell.wake()

    def _take(self, source: int, kind: int, tag: int, serial: int, content: memoryview) -> bool:
        out = self._out[source]
        if kind == TAKEN:
            return out.taken(serial)
        if kind == AGAIN:
            out.again(serial)
        elif kind == PROBE:
            self._answer_probe(source, tag, serial)
        else:
            return self._take_part(source, tag, serial, content)
        return False

    def _take_part(self, source: int, tag: int, serial: int, content: memoryview) -> bool:
        edge = self._edges[source]
        incoming = edge.incoming.get(tag)
        if incoming is None:
            incoming = edge.incoming[tag] = Incoming(self._terms, self._neighbours[source].number)
        edge.parts[tag] += 1
        try:
            message = incoming.take(content)
        except RefusedError as error:
            if error.reason is Refusal.INCOMPLETE and serial > edge.newest[tag]:
                self._ask_again(source, tag, serial)
            raise
        if message is None:
            return False
        edge.newest[tag] = message.header.serial
        return self._complete(source, tag, message.header.serial, message.data)

    def _ask_again(self, source: int, tag: int, serial: int) -> None:
        """A part is missing: all of it, once more (which its sender does once, however often it is asked)."""
        self._out[source].say(envelope(AGAIN, tag, serial))

    def _answer_probe(self, source: int, tag: int, serial: int) -> None:
        """Its sender has had no answer: that was lost, or the message was, or it waits for a receive."""
        edge = self._edges[source]
        if serial in edge.dropped:
            self._ask_again(source, tag, serial)
            return
        if serial <= edge.newest[tag]:
            if all(serial != held for held, _ in edge.held[tag]):
                self._out[source].say(envelope(TAKEN, tag, serial))
            return
        here = (serial, edge.parts[tag])
        if edge.probed.get(tag) == here:  # and nothing has come since the last probe
            self._ask_again(source, tag, serial)
        edge.probed[tag] = here

    def _complete(self, source: int, tag: int, serial: int, data: Bytes) -> bool:
        edge = self._edges[source]
        posted = edge.posted[tag]
        while posted and posted[0].count is not None:  # cancelled
            posted.popleft()
        if posted:
            self._deliver(source, posted.popleft(), serial, data)
            return True
        edge.held[tag].append((serial, data))
        if len(edge.held[tag]) > _HELD:  # its sender does not wait for answers
            edge.held[tag].popleft()
            raise RefusedError(Refusal.OVERSIZED, "too many at a time")
        return False

    def _deliver(self, source: int, half: Half, serial: int, data: Bytes) -> None:
        fits = data.size <= half.data.size
        if fits:
            half.data[: data.size] = data
        half.count = data.size if fits else GARBLED
        self._out[source].say(envelope(TAKEN, half.tag, serial))

    def parts_of_models(self, source: int) -> int:
        """How many parts of this neighbour's models have come: whether one is on its way."""
        with self._lock:
            return self._edges[source].parts[MODEL]

    # --- who comes and goes ----------------------------------------------------------------------

    def forget(self, k: int) -> None:
        """Neighbour k has come, is gone, or is another process: what was under way, both ways, is given up.

        It may have seen us before we saw it, and so have sent something already: that is asked for again.
        """
        edge = self._edges[k]
        with self._lock:
            edge.dropped.extend(serial for waiting in edge.held.values() for serial, _ in waiting)
            edge.held.clear()
        self._out[k].forget()
        self.doorbell.wake()

    def close(self) -> None:
        """End the threads and the session; what has not left by then is given up."""
        for out in self._out.values():
            out.close()
        self._link.close()
        for out in self._out.values():
            out.join()
