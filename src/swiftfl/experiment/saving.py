"""When a run saves a checkpoint."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

_LONG_SAVE, _SHARE_OF_SAVING, _AT_MOST = 1.0, 10, 1800.0
"""After a save of more than so many seconds, so many times as long is waited, but at most half an hour:
a disk that hung, or a process that was stopped meanwhile, says nothing of the next save."""


class SavingTimes:
    """Every so many seconds, but of very many clients a save takes a minute: then it is made more seldom."""

    def __init__(self, every: float | None) -> None:
        self._every, self._took = every, 0.0
        self._last = time.monotonic()

    @property
    def due(self) -> bool:
        if self._every is None:
            return False
        share = min(_SHARE_OF_SAVING * self._took, _AT_MOST) if self._took > _LONG_SAVE else 0.0
        return time.monotonic() - self._last >= max(self._every, share)

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Around a save that was due."""
        began = time.monotonic()
        yield
        self._last = time.monotonic()
        self._took = self._last - began
