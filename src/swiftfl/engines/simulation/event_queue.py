"""What is to happen in virtual time, in its order."""

from __future__ import annotations

import heapq
import math
from array import array

from swiftfl.engines.saved import Saved, Tree

NOBODY = -1
"""The client of an event that concerns the network."""


class EventQueue:
    """Events by (time, order). Of the entries of a client only the one that it expects counts."""

    __slots__ = ("_order", "expected", "heap", "times")

    def __init__(self, n: int) -> None:
        self.heap: list[tuple[float, int, int]] = []
        self._order = 0
        self.expected = [0] * n  # the number of the event that each client waits for
        self.times = array("d", [0.0]) * n  # of each client's last event: it does nothing before

    def schedule(self, i: int, time: float) -> None:
        """Client i goes on at this time; whatever was scheduled for it before is void."""
        self._order += 1
        self.expected[i] = self._order
        self.times[i] = time
        heapq.heappush(self.heap, (time, self._order, i))

    def plan(self, time: float) -> int:
        """An event of the network; the number by which it will be known."""
        self._order += 1
        heapq.heappush(self.heap, (time, self._order, NOBODY))
        return self._order

    def cancel(self, i: int) -> None:
        """Nothing is scheduled for client i any more."""
        self.expected[i] = 0

    def never_again(self, i: int) -> None:
        """Client i has finished: it does nothing any more."""
        self.times[i] = math.inf

    def pop(self) -> tuple[float, int, int]:
        """The next event: its time, its number, and whose it is."""
        return heapq.heappop(self.heap)

    def due(self, i: int) -> float | None:
        """When client i goes on, if that is known."""
        expected = self.expected[i]
        return next((time for time, number, k in self.heap if k == i and number == expected), None)

    def scheduled(self) -> set[int]:
        """The clients for which something is scheduled."""
        return {i for _, number, i in self.heap if i != NOBODY and self.expected[i] == number}

    def planned(self) -> set[int]:
        """The numbers of the network's events."""
        return {number for _, number, i in self.heap if i == NOBODY}

    def another_at(self, time: float) -> bool:
        """Whether something else happens at this very time."""
        return bool(self.heap) and self.heap[0][0] == time

    def state(self) -> Tree:
        return {"order": self._order, "expected": list(self.expected), "heap": list(self.heap)}

    def restore(self, saved: Saved) -> None:
        n = len(self.expected)
        self._order = saved["order"].integer()
        self.expected = [item.integer(0, self._order) for item in saved["expected"].items(n)]
        heap = []
        for item in saved["heap"].items():
            time, number, client = item.items(3)
            heap.append((time.number(0.0), number.integer(1, self._order), client.integer(NOBODY, n - 1)))
        if len({number for _, number, _ in heap}) < len(heap):
            saved["heap"].fail("has two events of one number")
        heapq.heapify(heap)
        self.times = array("d", [0.0]) * n
        for when, order, i in heap:
            if i != NOBODY and self.expected[i] == order:
                self.times[i] = when
        self.heap[:] = heap
