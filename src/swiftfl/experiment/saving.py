"""When a run saves a checkpoint."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

_LONG_SAVE, _SHARE_OF_SAVING = 1.0, 10
"""A save of more than so many seconds waits for at least so many times as long."""


class SavingTimes:
    """Every so many seconds, but of very many clients a save takes a minute: then it is made more seldom."""

    def __init__(self, every: float | None) -> None:
        self._every, self._took = every, 0.0
        self._last = time.monotonic()

    @property
    def due(self) -> bool:
        if self._every is None:
            return False
        share = _SHARE_OF_SAVING * self._took if self._took > _LONG_SAVE else 0.0
        return time.monotonic() - self._last >= max(self._every, share)

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Around a save that was due."""
        began = time.monotonic()
        yield
        self._last = time.monotonic()
        self._took = self._last - began
