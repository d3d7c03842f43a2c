"""Who sends in pieces: found out by comparing rings with arrivals.

Where a message can be copied in one go it is there with the first look after its ring. Where it is not (over
TCP, or without the kernel's single copies) it travels in pieces, and both ends have to look again and again.
That stays as it is during a run. So everybody is rung for the first messages, from which it is learnt, and
later only where it has to be. All of this only decides how soon somebody looks: a mistake costs time, never a
message.
"""

from __future__ import annotations

import time
from collections import Counter

_HURRY = 1.0  # seconds; nobody hurries longer for a message that does not come on
_AHEAD = 4  # arrivals that may go unannounced before they count no more
LEARNING = 8
"""Messages to each neighbour for which it is rung in any case."""
_SURE = 3  # messages in pieces after which all others are expected to be: one may have been a mistake


class MessageFragments:
    """What one client knows of the messages of others."""

    def __init__(self) -> None:
        self._balance: dict[int, int] = {}  # arrivals from each, less its rings
        self._until: dict[int, float] = {}  # with whom a message is under way in pieces
        self._noted: Counter[int] = Counter()  # how many were, by whom they were exchanged with
        self.expected = False  # from or to anybody

    def announced(self, k: int) -> None:
        """k has rung for a message."""
        self._balance[k] = max(-1, self._balance.get(k, 0) - 1)

    def arrived(self, k: int) -> None:
        self._balance[k] = min(_AHEAD, self._balance.get(k, 0) + 1)

    def missing(self, k: int) -> bool:
        """After a look: whether what k rang for is not here yet."""
        if self._balance[k] < 0:
            self.note(k)
            return True
        return False

    def note(self, k: int) -> None:
        """A message to or from k is on its way in pieces."""
        self._noted[k] += 1
        self.expected = self.expected or self.usual(k)
        self._until[k] = time.monotonic() + _HURRY

    def over(self, k: int) -> None:
        """A message to or from k has arrived, or never will."""
        self._until.pop(k, None)

    def usual(self, k: int) -> bool:
        """Whether messages to and from k come in pieces."""
        return self._noted[k] >= _SURE

    @property
    def under_way(self) -> bool:
        """Whether looking soon again may bring something on."""
        if self._until:
            now = time.monotonic()
            for k in [k for k, until in list(self._until.items()) if until < now]:
                self._until.pop(k, None)
        return bool(self._until)
