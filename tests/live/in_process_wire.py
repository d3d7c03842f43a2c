"""A wire within one process, for transports that pass messages: each client's end in its own thread."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Sequence

from swiftfl.transports.codec import Bytes
from swiftfl.transports.messages.doorbell import Doorbell
from swiftfl.transports.messages.wire import GARBLED, Transfer


class Half:
    """A send or a receive; it is over when `count` is set."""

    def __init__(self, data: Bytes) -> None:
        self.data = data
        self.count: int | None = None

    def Cancel(self) -> None:  # noqa: N802 - as MPI calls it
        self.count = GARBLED


class Hub:
    """Where sends meet receives of the same source, destination and tag, in order."""

    def __init__(self, n: int) -> None:
        self.lock = threading.Lock()
        self.sends: dict[tuple[int, int, int], deque[Half]] = defaultdict(deque)
        self.receives: dict[tuple[int, int, int], deque[Half]] = defaultdict(deque)
        self.bytes_sent: dict[int, list[int]] = defaultdict(list)  # by tag
        self.wires = [InProcessWire(self, rank, n) for rank in range(n)]
        for wire in self.wires:
            wire.doorbell.connect([other.doorbell.address for other in self.wires])

    def match(self) -> None:
        with self.lock:
            for key, sends in list(self.sends.items()):
                receives = self.receives[key]
                while sends and receives:
                    there, here = sends.popleft(), receives.popleft()
                    if here.count is not None:  # cancelled
                        sends.appendleft(there)
                        continue
                    size = there.data.size
                    fits = size <= here.data.size
                    if fits:
                        here.data[:size] = there.data
                    self.bytes_sent[key[2]].append(size)
                    there.count, here.count = size, size if fits else GARBLED


class InProcessWire:
    def __init__(self, hub: Hub, rank: int, size: int) -> None:
        self.hub, self.rank, self.size = hub, rank, size
        self.doorbell = Doorbell(rank)

    def send(self, data: Bytes, to: int, tag: int) -> Transfer:
        half = Half(data)
        with self.hub.lock:
            self.hub.sends[self.rank, to, tag].append(half)
        return half

    def receive(self, data: Bytes, source: int, tag: int) -> Transfer:
        half = Half(data)
        with self.hub.lock:
            self.hub.receives[source, self.rank, tag].append(half)
        return half

    def completed(self, transfers: Sequence[Transfer]) -> list[tuple[int, int]]:
        self.hub.match()
        halves = [half for half in transfers if isinstance(half, Half)]
        return [(at, half.count) for at, half in enumerate(halves) if half.count is not None]
