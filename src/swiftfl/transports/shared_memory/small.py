"""Small messages between neighbours: one record per kind and directed edge, which only its sender writes.

A record is four words: a sequence number, an epoch and two numbers. The sequence number is odd while the
record is being written, and higher afterwards; a reader that finds it odd, or changed, leaves the record out
and finds it whole at its next look. So neither end ever waits, also for one that was killed while it wrote.
"""

from __future__ import annotations

from swiftfl.transports.base import KINDS, SmallMessage
from swiftfl.transports.shared_memory.words import Words


class SharedSmallMessages:
    """Client i's small messages to its neighbours, and theirs to it."""

    def __init__(self, i: int, words: Words) -> None:
        self.i, self.words = i, words

    def tell(self, k: int, message: SmallMessage) -> None:
        words = self.words
        at = words.layout.told(self.i, k, message.kind)
        being_written = (words.values[at] + 1) | 1  # also if its writer was killed at it
        words.values[at] = being_written
        words.fence()
        words.values[at + 1] = message.epoch
        words.numbers[at + 2] = message.first
        words.numbers[at + 3] = message.second
        words.fence()
        words.values[at] = being_written + 1

    def heard(self, k: int) -> list[SmallMessage]:
        found = (self._read(k, kind) for kind in range(KINDS))
        return [message for message in found if message is not None]

    def _read(self, k: int, kind: int) -> SmallMessage | None:
        words = self.words
        at = words.layout.told(k, self.i, kind)
        seen = words.values[at]
        if not seen or seen % 2:
            return None
        words.fence()
        message = SmallMessage(kind, words.values[at + 1], words.numbers[at + 2], words.numbers[at + 3])
        words.fence()
        return message if words.values[at] == seen else None
