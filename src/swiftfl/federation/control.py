"""What a node's training loop is told, and what it tells: there is no engine above it."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable

from swiftfl.engines.live.status import Order, Tally
from swiftfl.engines.terms import Terms
from swiftfl.vector import Vector

_WINDOW = 10.0  # seconds over which steps are counted


class NodeControl:
    """`Control` of a client that nobody supervises: it stops when asked to, and ends after `last` steps."""

    def __init__(
        self,
        terms: Callable[[], list[Terms]],
        stopping: Callable[[], bool],
        warn: Callable[[str], None],
        last: float = math.inf,
        rate: float = 1.0,
    ) -> None:
        self._terms, self._stopping, self._warn, self._last = terms, stopping, warn, last
        self._first_rate = rate
        self._steps: deque[tuple[float, int]] = deque()
        self.c = 0
        self.tally = Tally()
        self.between_steps: Callable[[Vector], None] = lambda x: None
        """Called with the model before each step, by the thread that trains."""
        self.longest_gap = 0.0
        """Seconds, at most, from the start of one step to the start of the next."""

    def report(self, c: int, tally: Tally) -> None:
        now = time.monotonic()
        if self._steps and c > self.c:
            self.longest_gap = max(self.longest_gap, now - self._steps[-1][0])
        self.c, self.tally = c, tally
        self._steps.append((now, c))
        while len(self._steps) > 3 and now - self._steps[1][0] > _WINDOW:
            self._steps.popleft()

    @property
    def last_step(self) -> float | None:
        """When the newest step began, by `time.monotonic`."""
        steps = list(self._steps)
        return steps[-1][0] if steps else None

    def rate(self) -> float:
        """Steps per second, lately."""
        steps = list(self._steps)
        if len(steps) < 4 or steps[-1][0] <= steps[0][0]:
            return self._first_rate
        return (steps[-1][1] - steps[0][1]) / (steps[-1][0] - steps[0][0])

    def new_terms(self) -> list[Terms]:
        return self._terms()

    def wants_model(self, published: bool) -> bool:
        return False

    def hand_over(self, x: Vector, version: int) -> None:
        """Neighbours take what was published; whoever else has to see the model sees it now."""
        self.between_steps(x)

    def order(self, c: int) -> Order:
        if self._stopping():
            return "stop"
        return "finish" if c > self._last else "go_on"

    def hold(self, c: int) -> Order:
        return self.order(c)

    def set_waits(self, waits: bool) -> None:
        """SWIFT never does."""

    def warn(self, text: str) -> None:
        self._warn(text)
