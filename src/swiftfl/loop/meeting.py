"""Who waits in `peer.consensus()`, and when the average is made: a decision without any I/O of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

_SAY_AFTER = 10.0


class Meeting:
    """Opens with the first who comes; due when all who are expected have come, or somebody's time is up."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._clock = say, clock
        self._until: dict[int, float] = {}  # who is here, and until when it waits
        self._opened = 0.0
        self._said = False

    def come(self, i: int, seconds: float) -> None:
        if not self._until:
            self._opened, self._said = self._clock(), False
        self._until[i] = self._clock() + seconds

    def leave(self, i: int) -> None:
        """Client i has ended."""
        self._until.pop(i, None)

    def due(self, expected: Collection[int]) -> list[int]:
        """Whose models are to be averaged now; nobody's if some who are expected may still come."""
        if not self._until:
            return []
        missing, now = sorted(set(expected) - self._until.keys()), self._clock()
        if missing and now < min(self._until.values()):
            if now - self._opened >= _SAY_AFTER and not self._said:
                self._said = True
                self._say(f"swiftfl: consensus() waits for client{_listed(missing)}")
            return []
        if missing:
            self._say(f"swiftfl: consensus() without client{_listed(missing)}: it was waited for long enough")
        members = sorted(self._until)
        self._until.clear()
        return members


def _listed(clients: Collection[int]) -> str:
    return ("s " if len(clients) > 1 else " ") + ", ".join(map(str, clients))
