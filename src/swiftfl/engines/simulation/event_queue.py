"""What is to happen in virtual time, in its order."""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Iterable
from typing import Protocol, TypeAlias

from swiftfl.engines.saved import Saved, Tree
from swiftfl.small import calls

NOBODY = -1
"""The client of an event that concerns the network."""
_MOST_EVENTS = 2**62
Event: TypeAlias = tuple[float, int, int]
"""Its time, its number, and whose it is."""


class Events(Protocol):
    """Events by (time, number): numbers are unique. `events.c` has the same, compiled."""

    def push(self, time: float, number: int, client: int) -> None: ...

    def pop(self) -> Event:
        """The first event, which is taken out."""

    def first(self) -> Event:
        """The first event, which stays."""

    def entries(self) -> list[Event]:
        """All events, in no order."""

    def __len__(self) -> int: ...


class TupleEvents:
    """A heap of Python's."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[Event] = []

    def push(self, time: float, number: int, client: int) -> None:
        heapq.heappush(self._heap, (time, number, client))

    def pop(self) -> Event:
        return heapq.heappop(self._heap)

    def first(self) -> Event:
        return self._heap[0]

    def entries(self) -> list[Event]:
        return list(self._heap)

    def __len__(self) -> int:
        return len(self._heap)


def _heap_of(events: Iterable[Event]) -> Events:
    heap: Events = TupleEvents() if calls.Events is None else calls.Events()
    for event in events:
        heap.push(*event)
    return heap


class EventQueue:
    """Events by (time, number). Of the entries of a client only the one that it expects counts."""

    __slots__ = ("_order", "expected", "heap", "times")

    def __init__(self, n: int) -> None:
        self.heap = _heap_of(())
        self._order = 0
        self.expected = array("q", [0]) * n  # the number of the event that each client waits for; 0: none
        self.times = array("d", [0.0]) * n  # of each client's last event: it does nothing before

    def use_compiled(self) -> None:
        """Go on with a compiled heap, if there is one by now."""
        if calls.Events is not None and type(self.heap) is TupleEvents:
            self.heap = _heap_of(self.heap.entries())

    def schedule(self, i: int, time: float) -> None:
        """Client i goes on at this time; whatever was scheduled for it before is void."""
        self._order = number = self._order + 1
        self.expected[i] = number
        self.times[i] = time
        self.heap.push(time, number, i)

    def plan(self, time: float) -> int:
        """An event of the network; the number by which it will be known."""
        self._order += 1
        self.heap.push(time, self._order, NOBODY)
        return self._order

    def cancel(self, i: int) -> None:
        """Nothing is scheduled for client i any more."""
        self.expected[i] = 0

    def never_again(self, i: int) -> None:
        """Client i has finished: it does nothing any more."""
        self.times[i] = math.inf

    def pop(self) -> Event | None:
        """The next event; None where it is one that its client does not expect any more."""
        event = self.heap.pop()
        i = event[2]
        if i != NOBODY:
            if self.expected[i] != event[1]:
                return None
            self.expected[i] = 0
        return event

    def due(self, i: int) -> float | None:
        """When client i goes on, if that is known."""
        return self.times[i] if self.expected[i] else None

    def scheduled(self) -> set[int]:
        """The clients for which something is scheduled."""
        return {i for i, number in enumerate(self.expected) if number}

    def planned(self) -> set[int]:
        """The numbers of the network's events."""
        return {number for _, number, i in self.heap.entries() if i == NOBODY}

    def another_at(self, time: float) -> bool:
        """Whether something else happens at this very time."""
        return len(self.heap) > 0 and self.heap.first()[0] == time

    def state(self) -> Tree:
        return {"order": self._order, "expected": list(self.expected), "heap": self.heap.entries()}

    def restore(self, saved: Saved) -> None:
        n = len(self.expected)
        self._order = saved["order"].integer(0, _MOST_EVENTS)
        expected = [item.integer(0, self._order) for item in saved["expected"].items(n)]
        heap: list[Event] = []
        for item in saved["heap"].items():
            time, number, client = item.items(3)
            heap.append((time.number(0.0), number.integer(1, self._order), client.integer(NOBODY, n - 1)))
        if len({number for _, number, _ in heap}) < len(heap):
            saved["heap"].fail("has two events of one number")
        self.expected, self.times = array("q", [0]) * n, array("d", [0.0]) * n
        for when, order, i in heap:
            if i != NOBODY and expected[i] == order:
                self.expected[i], self.times[i] = order, when
        self.heap = _heap_of(heap)
