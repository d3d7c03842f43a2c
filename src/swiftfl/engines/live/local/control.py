"""The control channel between the supervisor and its clients on one machine: news out, warnings in.

Each client has a socket of its own. Nobody waits: news that does not fit now (a stopped client reads
nothing) is kept and sent later; where clients do not meet in rounds, only the newest is.
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any

from swiftfl.engines.assignment import Assignment
from swiftfl.engines.live.selecting import News, Switch
from swiftfl.engines.live.status import StatusTable
from swiftfl.engines.terms import Terms, pack_terms, unpack_terms

_log = logging.getLogger(__name__)
_LARGEST = 1 << 20
_LONGEST_TEXT = 2000  # characters of a warning or an error; the rest is cut


class ControlChannel:
    """The supervisor's ends of the clients' sockets."""

    def __init__(self, sockets: Sequence[socket.socket], status: StatusTable, in_rounds: bool) -> None:
        self.sockets, self.status, self.in_rounds = sockets, status, in_rounds
        self._unsent: dict[int, list[bytes]] = {}

    def send(self, i: int, incarnation: int, news: News) -> None:
        """Put news on its way to this incarnation of a client."""
        message = json.dumps({"incarnation": incarnation, **_packed(news)}).encode()
        waiting = self._unsent.get(i, []) if self.in_rounds else []
        self._unsent[i] = [*waiting, message]

    def deliver(self, living: Collection[int]) -> None:
        """As many messages as their sockets take; those to clients that have ended are dropped."""
        for i, messages in list(self._unsent.items()):
            try:
                while messages:
                    self.sockets[i].send(messages[0], socket.MSG_DONTWAIT)
                    messages.pop(0)
                    self.status.messages[i] += 1  # clients look at this, which costs less than their socket
            except OSError:
                if i in living:
                    continue
            del self._unsent[i]

    def received(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """What clients have said: `warning` or `error`, each with its text."""
        for i, channel in enumerate(self.sockets):
            while True:
                try:
                    packet = channel.recv(_LARGEST, socket.MSG_DONTWAIT)
                    yield i, json.loads(packet)
                except OSError:
                    break
                except ValueError:
                    _log.warning("a message of client %d cannot be read and is ignored", i)

    def close(self) -> None:
        for channel in self.sockets:
            channel.close()


class ClientChannel:
    """A client's end of its socket."""

    def __init__(self, channel: socket.socket, status: StatusTable, client: int) -> None:
        self.socket, self.status, self.client = channel, status, client
        self._read = 0.0

    def news(self, incarnation: int) -> list[News]:
        """What has arrived for this incarnation since the last call."""
        found: list[News] = []
        sent = self.status.messages[self.client]
        if sent == self._read:
            return found
        self._read = sent
        while True:
            try:
                packet = self.socket.recv(_LARGEST, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return found
            message = json.loads(packet)
            if message["incarnation"] == incarnation:
                found.append(_unpacked(message))

    def say(self, kind: str, text: str) -> None:
        """Tell the supervisor: a "warning" or an "error"."""
        if len(text) > _LONGEST_TEXT:
            text = text[:_LONGEST_TEXT] + " ... (cut)"
        with suppress(OSError):  # nobody listens any more, or there is too much to say
            self.socket.send(json.dumps({kind: text}).encode(), socket.MSG_DONTWAIT)


def _packed(news: News) -> dict[str, Any]:
    if isinstance(news, Terms):
        return {"terms": pack_terms(news)}
    if isinstance(news, Assignment):
        return {"assignment": news.pack()}
    return {"switch": [news.epoch, news.from_round]}


def _unpacked(message: dict[str, Any]) -> News:
    if "terms" in message:
        return unpack_terms(message["terms"])
    if "assignment" in message:
        return Assignment.unpack(message["assignment"])
    return Switch(*message["switch"])
