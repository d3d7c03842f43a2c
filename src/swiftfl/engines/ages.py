"""How old the models are that a client averages: since when they are published, in steps of their publisher.

This is the one place where an age is computed, in every engine. How long a step is, is not known while it
goes on, so it is measured: the times and versions of a publisher's recent models give its mean step.
"""

from __future__ import annotations

import math

from swiftfl.engines.saved import Saved, pack_number
from swiftfl.vector import Vector
from swiftfl.verbs import Fetched

_WINDOW = 64
"""A pace is the mean of the last 64 to 128 steps: it follows a client that slows down, and varies little."""


class Pace:
    """How long a publisher's steps are, from the times and versions of what it published.

    >>> pace = Pace()
    >>> for version, time in [(1, 0.0), (2, 0.5), (4, 1.5)]:
    ...     pace.note(version, time)
    >>> pace.age(published=1.5, now=1.75)
    0.5
    """

    __slots__ = ("_last", "_middle", "_old", "step")

    def __init__(self) -> None:
        self._old = self._middle = self._last = (0, -math.inf)
        self.step = 0.0
        """How long its steps are; 0 where that is not known yet."""

    def note(self, version: int, time: float) -> None:
        """A model was published; one of the same version as the last tells nothing."""
        if version == self._last[0]:
            return
        self._last = last = (version, time)
        first, began = self._old
        since = version - self._middle[0]
        if since < 0 or began == -math.inf:  # it has begun, or begun anew
            self._old = self._middle = last
            self.step = 0.0
            return
        if since >= _WINDOW:
            self._old, self._middle = self._middle, last
            first, began = self._old
        self.step = (time - began) / (version - first) if version > first and time > began else 0.0

    def age(self, published: float, now: float) -> float | None:
        """How many steps ago something was published; None where no step is known yet."""
        if self.step == 0.0 or published == -math.inf:
            return None
        return (now - published) / self.step

    def state(self) -> list[list[object]]:
        return [[version, pack_number(time)] for version, time in (self._old, self._middle, self._last)]

    def restore(self, saved: Saved) -> None:
        old, middle, last = (item.items(2) for item in saved.items(3))
        self._old, self._middle, self._last = (
            (version.integer(), time.any_number()) for version, time in (old, middle, last)
        )
        (first, began), (version, time) = self._old, self._last
        self.step = (time - began) / (version - first) if version > first and time > began else 0.0


class FetchedModels(dict[int, Vector], Fetched):
    """The models of a fetch in a simulation, with their ages, which whoever makes it puts there."""

    __slots__ = ("ages",)
    ages: dict[int, float]
