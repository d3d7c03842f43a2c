"""Each client's clock, and how its time was spent."""

from __future__ import annotations


class Clocks:
    """Clocks in seconds; every second of a client is compute, communication or waiting.

    Time in which a client was not there (asleep, crashed, not yet joined) is none of the three.
    """

    def __init__(self, n: int) -> None:
        self.clock = [0.0] * n
        self.compute = [0.0] * n
        self.communication = [0.0] * n
        self.waiting = [0.0] * n
        self.asleep = [0.0] * n
        self.steps = [0] * n

    def compute_until(self, i: int, time: float) -> None:
        self.compute[i] += time - self.clock[i]
        self.clock[i] = time

    def communicate(self, i: int, seconds: float) -> None:
        self.communication[i] += seconds
        self.clock[i] += seconds

    def wait(self, i: int, seconds: float) -> None:
        self.waiting[i] += seconds
        self.clock[i] += seconds

    def skip(self, i: int, seconds: float) -> None:
        self.asleep[i] += seconds
        self.clock[i] += seconds
