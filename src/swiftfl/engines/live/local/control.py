"""Letters between the supervisor and its clients on one machine: new terms out, warnings in.

Each client has a socket of its own. Nobody waits: terms that do not fit now (a stopped client reads
nothing) are kept and sent later; where clients do not meet in rounds, only the newest are.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from swiftfl.engines.live.status import StatusTable
from swiftfl.engines.terms import Terms, pack_terms

_LARGEST = 1 << 16


class ControlChannel:
    """The supervisor's ends of the clients' sockets."""

    def __init__(self, lines: Sequence[socket.socket], board: StatusTable, in_rounds: bool) -> None:
        self.lines, self.board, self.in_rounds = lines, board, in_rounds
        self._unsent: dict[int, list[bytes]] = {}

    def send(self, i: int, life: int, terms: Terms) -> None:
        """Put terms on their way to this life of a client."""
        letter = json.dumps({"life": life, "terms": pack_terms(terms)}).encode()
        waiting = self._unsent.get(i, []) if self.in_rounds else []
        self._unsent[i] = [*waiting, letter]

    def deliver(self, living: Collection[int]) -> None:
        """As many letters as their sockets take; those of the dead are thrown away."""
        for i, letters in list(self._unsent.items()):
            try:
                while letters:
                    self.lines[i].send(letters[0], socket.MSG_DONTWAIT)
                    letters.pop(0)
                    self.board.letters[i] += 1  # clients look at this, which costs less than their socket
            except OSError:
                if i in living:
                    continue
            del self._unsent[i]

    def news(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """What clients have said: `warning` or `error`, each with its text."""
        for i, line in enumerate(self.lines):
            while True:
                try:
                    yield i, json.loads(line.recv(_LARGEST, socket.MSG_DONTWAIT))
                except OSError:
                    break

    def close(self) -> None:
        for line in self.lines:
            line.close()
