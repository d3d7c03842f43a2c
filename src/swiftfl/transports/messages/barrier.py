"""A barrier over everybody: each client tells all others which round it has come to, and waits for theirs.

Of these messages only the newest counts, because a client that has come to a later round has passed the
earlier ones. Nobody is in the middle, so that no loss of one client keeps the others from going on.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from swiftfl.transports.messages.newest import NewestReceiver, NewestSender
from swiftfl.transports.messages.progress import ProgressThread
from swiftfl.transports.messages.wire import REACHED

_EVERY_ROUND = 1 << 60
_NOTHING = np.zeros(1)


class MessageBarrier:
    """Client i's part."""

    def __init__(self, progress: ProgressThread) -> None:
        self._progress = progress
        others = [k for k in range(progress.wire.size) if k != progress.wire.rank]
        self._out = NewestSender(progress, REACHED, _NOTHING, others)
        self._in = {k: NewestReceiver(progress, REACHED, k, _NOTHING) for k in others}

    def wait(self, round: int, outside: Collection[int]) -> None:
        """Until everybody has come to this round, but for those who are gone or take no part."""
        self._out.put(_NOTHING, round + 1)
        gone = self._progress.gone
        self._progress.wait(
            lambda: all(
                receiver.version > round or k in gone or k in outside for k, receiver in self._in.items()
            )
        )

    def pass_all(self) -> None:
        """Nobody is to wait for this client any more."""
        self._out.put(_NOTHING, _EVERY_ROUND)
