"""Small messages between neighbours: to each a table of the newest of each kind, on a newest-value channel.

A table that waits is superseded by one that holds everything that it held, so nothing is lost that is not
replaced, and at most one table is under way along an edge. The channels are made at their first use: runs
that tell nothing pay nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from swiftfl.transports.base import KINDS, SmallMessage
from swiftfl.transports.messages.newest import NewestReceiver, NewestSender
from swiftfl.transports.messages.progress import ProgressThread
from swiftfl.transports.messages.wire import TOLD
from swiftfl.vector import Vector

_WORDS = 4  # 1 if there is one, its epoch (exact below 2^53), and two numbers
_EPOCHS = 1 << 53


class SmallMessages:
    """One client's end."""

    def __init__(
        self,
        progress: ProgressThread,
        neighbours: Sequence[int],
        version: int = 0,
        refusing: Callable[[int, str], None] | None = None,
    ) -> None:
        """Tables are numbered from `version` on: one who is started again goes on from a larger one.

        `refusing` is told of tables with epochs that cannot be, each once, with their sender.
        """
        self._refusing = refusing
        self._refused: dict[int, int] = {}  # the version of the last such table, by sender
        empty = np.zeros(KINDS * _WORDS)
        self._tables = {k: empty.copy() for k in neighbours}
        self._version = version
        with progress.moving:
            self._senders = {k: NewestSender(progress, TOLD, empty, [k]) for k in neighbours}
            self._receivers = {k: NewestReceiver(progress, TOLD, k, empty) for k in neighbours}

    def tell(self, k: int, message: SmallMessage) -> None:
        table, at = self._tables[k], message.kind * _WORDS
        table[at : at + _WORDS] = 1.0, message.epoch, message.first, message.second
        self._version += 1
        self._senders[k].put(table, self._version)

    def again(self, k: int) -> None:
        """Neighbour k is back, and may have lost what it was told."""
        self._senders[k].again(k)

    def heard(self, k: int) -> list[SmallMessage]:
        found = self._receivers[k].read(_messages)
        if found is None:
            return []
        messages, impossible, version = found
        if impossible and self._refusing is not None and self._refused.get(k) != version:
            self._refused[k] = version
            self._refusing(k, f"{impossible} small messages of epochs that cannot be")
        return messages


def _messages(table: Vector, version: int) -> tuple[list[SmallMessage], int, int]:
    """The messages of a table, how many others there were that cannot be, and its version."""
    rows = [(kind, row) for kind, row in enumerate(table.reshape(KINDS, _WORDS).tolist()) if row[0]]
    sound = [(kind, row) for kind, row in rows if 0 <= row[1] < _EPOCHS and row[1].is_integer()]
    messages = [SmallMessage(kind, int(epoch), first, second) for kind, (_, epoch, first, second) in sound]
    return messages, len(rows) - len(sound), version
