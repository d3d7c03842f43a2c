"""Loop or batch: chosen by measuring, per group size, and remembered so that a run can say what it did."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from swiftfl.errors import UserError

Way: TypeAlias = Literal["loop", "batched"]
_WAYS: tuple[Way, Way] = ("loop", "batched")
_ROUNDS = 3


class Choice:
    """Which way a group of n gradients goes.

    `batching` is "auto" (measure each power of two once), "on", "off", or the `groups` of an earlier
    run's choices, which repeats its run exactly. `bar` is the speed-up from which batching is taken:
    above 1 for a way that ties with the loop on some models, below 1 for one that wins nearly always,
    so that noise in the clock seldom decides.
    """

    def __init__(self, batching: str | Mapping[str, Way], bar: float) -> None:
        given = isinstance(batching, Mapping)
        if not given and batching not in ("auto", "on", "off"):
            raise UserError(f"batching must be auto, on, off or recorded choices, not {batching!r}")
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
        if isinstance(self.batching, Mapping):
            return self.batching.get(str(_size(n)), "loop")
        return self._ways.get(_size(n))

    def settle(self, n: int, speedup: float) -> Way:
        """Remember the way for groups like n."""
        way: Way = "batched" if speedup >= self._bar else "loop"
        self._ways[_size(n)] = way
        self.speedups[str(_size(n))] = round(speedup, 2)
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
