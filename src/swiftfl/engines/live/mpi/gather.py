"""The end of a run: the last models and numbers come together at one rank, the recorder, message by message.

The recorder is the first rank or, if that is lost or silent, the lowest rank that responds. A rank that does
not respond is given up: whether it does is found out by a *ping*, a message that a rank's progress thread
takes even while its client is busy, so that a slow rank is not taken for a stopped one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np

from swiftfl.engines.live.mpi.channel import FIRST, RankChannel
from swiftfl.engines.live.status import COLUMNS
from swiftfl.transports.codec import Bytes
from swiftfl.transports.messages.message import Message
from swiftfl.transports.messages.transport import MessageTransport
from swiftfl.transports.messages.wire import FINAL, LOST, PING
from swiftfl.vector import Vector

_FLUSH = 5.0  # seconds for the last messages to arrive
log = logging.getLogger(__name__)


class Pings:
    """Finds out whether ranks respond."""

    def __init__(self, transport: MessageTransport, channel: RankChannel) -> None:
        self._transport, self._channel = transport, channel
        self._open: set[int] = set()  # whose pings are awaited
        self._sent: dict[int, list[int]] = {}  # to whom one is under way, and what became of it
        self.accept([FIRST])

    def accept(self, sources: list[int]) -> None:
        """Respond to these from now on."""
        progress = self._transport.progress
        with progress.moving:
            for k in sources:
                if k != self._transport.i and k not in self._open and k not in progress.gone:
                    self._open.add(k)
                    self._receive(k, np.zeros(1, np.uint8))

    def _receive(self, k: int, data: Bytes) -> None:
        def again(count: int) -> None:
            if count != LOST and k not in self._transport.progress.gone:
                self._receive(k, data)

        self._transport.progress.receive(data, k, PING, again)

    def responds(self, k: int) -> bool:
        """Whether rank k takes a message within the channel's patience."""
        progress, left = self._transport.progress, self._sent.get(k)
        if left is None:
            left = self._sent[k] = []
            with progress.moving:
                progress.send(np.zeros(1, np.uint8), k, PING, left.append)
        if not self._channel.wait_for(lambda: bool(left) or k in progress.gone, self._channel.patience):
            return False
        self._sent.pop(k, None)
        return bool(left) and left[0] != LOST


class FinalGather:
    """One rank's part; `lose(k, reason)` is called for each rank that is left out."""

    def __init__(
        self,
        transport: MessageTransport,
        channel: RankChannel,
        dead: Callable[[], set[int]],
        lose: Callable[[int, str], None],
    ) -> None:
        self._transport, self._channel, self._dead, self._lose = transport, channel, dead, lose
        self._pings = Pings(transport, channel)
        self.silent: set[int] = set()  # who did not respond
        self.finals: dict[int, Message] = {}

    def run(self, x: Vector) -> bool:
        """Give this rank's last model away, or collect everybody's; whether this rank is the recorder."""
        if self._channel.leaderless:
            self._give_up(FIRST)
        if self._recorder == self._transport.i:
            self._collect(x)
            return True
        self._channel.silenced = True
        self._transport.flush(_FLUSH)
        return self._give(x)

    def close(self) -> None:
        """The recorder lets everybody leave."""
        self._channel.orders.let_go(clean=not self.silent)
        self._channel.tick()
        self._transport.flush(_FLUSH)

    def _give_up(self, k: int) -> None:
        """Go on without a rank that is dead or silent."""
        gone, dead = self._transport.progress.gone, self._dead()
        if k not in dead and k not in gone:
            self.silent.add(k)
            log.warning("rank %d does not respond", k)
        reason = f"silent for {self._channel.patience:g} s" if k in self.silent else "its rank died"
        for each in dead | {k}:
            self._transport.mark_gone(each)
            self._lose(each, reason if each == k else "its rank died")
        if k == FIRST:
            self._pings.accept([i for i in range(self._transport.n) if i != k])

    @property
    def _recorder(self) -> int:
        return min(k for k in range(self._transport.n) if k not in self._transport.progress.gone)

    def _give(self, x: Vector) -> bool:
        """To the recorder, or to the next one if that does not respond; whether that is this rank."""
        message, progress = self._final(x), self._transport.progress
        while (to := self._recorder) != self._transport.i:
            if to != FIRST and not self._pings.responds(to):
                self._give_up(to)
                continue
            left: list[int] = []
            with progress.moving:
                progress.send(message.filled, to, FINAL, left.append)
            self._channel.wait_for(
                lambda left=left, to=to: bool(left) or (to == FIRST and self._channel.leaderless)  # type: ignore[misc]
            )
            if left and left[0] != LOST:
                return False
            self._give_up(to)
        self._collect(x)
        return True

    def _collect(self, x: Vector) -> None:
        progress, me = self._transport.progress, self._transport.i
        self.finals = {me: self._final(x)}
        came: dict[int, int] = {}
        with progress.moving:
            for k in range(self._transport.n):
                if k != me and k not in progress.gone:
                    message = self.finals[k] = Message(len(COLUMNS) + x.size, np.float64)
                    progress.receive(message.data, k, FINAL, lambda count, k=k: came.update({k: count}))  # type: ignore[misc]
        while missing := [k for k in self.finals if k != me and k not in came and k not in progress.gone]:
            seen = len(came)
            if not self._channel.wait_for(
                lambda seen=seen: len(came) > seen or any(k in progress.gone for k in self.finals),  # type: ignore[misc]
                self._channel.patience,
            ):
                for k in missing:
                    if k not in came and not self._pings.responds(k):
                        self._give_up(k)
        for k in list(self.finals):
            if k != me and not (k in came and self.finals[k].is_whole(came[k])):
                del self.finals[k]
                self._lose(k, "lost at the end")
        for k, message in self.finals.items():
            self._channel.finalize(k, message.vector[: len(COLUMNS)])

    def _final(self, x: Vector) -> Message:
        """A row of the status table, and the model behind it."""
        message = Message(len(COLUMNS) + x.size, np.float64)
        message.fill(np.concatenate([self._channel.status.rows[self._transport.i], x.astype(np.float64)]))
        return message

    def model_of(self, k: int) -> Vector | None:
        """The last model of client k; None if it did not come."""
        return self.finals[k].vector[len(COLUMNS) :] if k in self.finals else None
