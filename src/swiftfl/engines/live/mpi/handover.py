"""How a rank that joins gets the model that it starts from: from one neighbour, exactly, in one message.

Where clients never wait for each other the newest models of all neighbours are there anyway. Where they meet
in rounds nobody publishes; so the neighbour that was chosen sends the model that it has before the round at
which the other one joins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from swiftfl.engines.live.mpi.channel import RankChannel
from swiftfl.transports.messages.newest import NewestReceiver, NewestSender
from swiftfl.transports.messages.transport import MessageTransport
from swiftfl.transports.messages.wire import START
from swiftfl.vector import Vector


class Handover:
    """One rank's part; `joiners` are all that may ever join."""

    def __init__(
        self, transport: MessageTransport, channel: RankChannel, x0: Vector, joiners: Collection[int]
    ) -> None:
        self._transport, self._channel, self._x0 = transport, channel, x0
        near, progress = transport.neighbours, transport.progress
        self._out = NewestSender(progress, START, x0, [k for k in near if k in joiners])
        sources = near if transport.i in joiners else ()
        self._in = {k: NewestReceiver(progress, START, k, x0) for k in sources}
        self._given: set[int] = set()  # to whom this rank has given a model

    def give(self, x: Vector, version: int) -> None:
        """Send the model that this client has before a step, if somebody starts from it."""
        wanted = self._channel.orders.starting_from(self._transport.i) - self._given
        if wanted:
            self._given |= wanted
            self._out.put(x, version)

    def take(self, source: int, in_rounds: bool, ended: Callable[[], bool]) -> tuple[Vector, int]:
        """The model of this neighbour, and its version; x0 if it is lost, or the run has ended."""

        def copied(x: Vector, version: int) -> tuple[Vector, int]:
            return x.copy(), version

        if source not in self._in:
            return self._x0, 0
        if not in_rounds:
            return self._transport.read(source, copied) or (self._x0, 0)
        gone, receiver = self._transport.progress.gone, self._in[source]
        self._channel.wait_for(lambda: bool(receiver.count) or source in gone or ended())
        return receiver.read(copied) or (self._x0, 0)
