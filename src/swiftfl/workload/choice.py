"""Loop or batch: by a fixed rule, by measuring per group size, or as told; remembered, so that a run can say.

The two differ in the last bits, so that the same seed gives the same run only if the choice is the
same, too. The default is therefore a rule that asks no clock.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from swiftfl.errors import UserError

_log = logging.getLogger(__name__)

Way: TypeAlias = Literal["loop", "batched"]
_WAYS: tuple[Way, Way] = ("loop", "batched")
_ROUNDS = 3
_LARGE_GROUP = 16  # of small models: vmap was 3 to 5 times as fast from here on (benchmarks/gradients.py)


class Choice:
    """Which way a group of n gradients goes.

    `batching` is "auto" (batch if the form wins on nearly every model, `bar` below 1, or the group is large),
    "measure" (each power of two once), "on", "off", or the `groups` of an earlier run's choices, which
    repeats its run exactly. `bar` is the speed-up from which batching is taken:
    above 1 for a way that ties with the loop on some models, below 1 for one that wins nearly always,
    so that noise in the clock seldom decides.
    """

    def __init__(self, batching: str | Mapping[str, Way], bar: float) -> None:
        given = isinstance(batching, Mapping)
        if not given and batching not in ("auto", "measure", "on", "off"):
            raise UserError(f"batching must be auto, measure, on, off or recorded choices, not {batching!r}")
        if isinstance(batching, Mapping) and any(way not in _WAYS for way in batching.values()):
            raise UserError(f"recorded choices must be 'loop' or 'batched', not {dict(batching)}")
        self.batching = batching
        self._bar = bar
        self._ways: dict[int, Way] = {}
        self.speedups: dict[str, float] = {}

    def known(self, n: int) -> Way | None:
        """The way for groups like n, or None if it has to be measured."""
        if self.batching == "on":
            return "batched"
        if self.batching == "off":
            return "loop"
        if self.batching == "auto":
            return "batched" if self._bar < 1 or n >= _LARGE_GROUP else "loop"
        if isinstance(self.batching, Mapping):
            return self.batching.get(str(_size(n)), "loop")
        return self._ways.get(_size(n))

    @property
    def of_all(self) -> Way | None:
        """The way of groups of every size, or None if they may differ."""
        if self.batching == "auto":
            return "batched" if self._bar < 1 else None
        return self.known(1) if self.batching in ("on", "off") else None

    def settle(self, n: int, speedup: float) -> Way:
        """Remember the way for groups like n."""
        way: Way = "batched" if speedup >= self._bar else "loop"
        self._ways[_size(n)] = way
        self.speedups[str(_size(n))] = round(speedup, 2)
        _log.debug("groups like %d: %s (batching is %.2f times as fast)", n, way, speedup)
        return way

    @property
    def groups(self) -> dict[str, Way]:
        """What was chosen, by group size (the power of two below it)."""
        if isinstance(self.batching, Mapping):
            return dict(self.batching)
        return {str(size): way for size, way in sorted(self._ways.items())}


def compare(loop: Callable[[], object], batched: Callable[[], object]) -> tuple[float, float]:
    """How long each takes at best once warm, timed in turns so that a busy moment hits both."""
    loop(), batched()
    times = [(_time(loop), _time(batched)) for _ in range(_ROUNDS)]
    return min(a for a, _ in times), min(b for _, b in times)


def _time(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _size(n: int) -> int:
    return 1 << (n.bit_length() - 1)
