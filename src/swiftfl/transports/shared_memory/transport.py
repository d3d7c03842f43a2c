"""Clients on one machine: models in shared memory, one copy to publish, none to read.

The parent makes the memory before it starts its clients; each client connects *after* its process
was forked (or spawned: a plan can be pickled while its maker lives). There is no server, no thread
and no named object: whatever happens to a process, the kernel frees its locks, and the memory goes
with the last process that uses it.

    plan = SharedMemory.create(neighbours, x0.size, x0.dtype, x0)   # in the parent
    wire = plan.connect(i)                           # in client i's process
    plan.mark_gone(i); plan.rejoin(i, round); plan.stop()     # the parent, as supervisor
    plan.observe().read(i, use)                      # the parent, to evaluate

One connection serves one thread.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from swiftfl.errors import UserError
from swiftfl.transports.shared_memory import layout as at
from swiftfl.transports.shared_memory.cells import SharedCells
from swiftfl.transports.shared_memory.file import ByteLock, SharedFile, create_file
from swiftfl.transports.shared_memory.holds import FENCES_WORK, HeldByLocks, HeldByWords, Holds
from swiftfl.transports.shared_memory.layout import MemoryLayout
from swiftfl.transports.shared_memory.reduction import SharedReduction
from swiftfl.transports.shared_memory.rounds import SharedRounds
from swiftfl.transports.shared_memory.slots import Slots
from swiftfl.transports.shared_memory.words import Words
from swiftfl.vector import Statistics, Vector

T = TypeVar("T")
_NOBODY: frozenset[int] = frozenset()


@dataclass
class SharedMemory:
    """The plan of a run's shared memory: what a process needs in order to connect."""

    layout: MemoryLayout
    dtype: str
    creator: int
    fd: int
    identity: tuple[int, int]
    prefault: bool

    @classmethod
    def create(
        cls,
        neighbours: Sequence[Sequence[int]],
        size: int,
        dtype: npt.DTypeLike,
        x0: Vector,
        prefault: bool = True,
    ) -> SharedMemory:
        """Memory for these clients; `neighbours[i]` are all that client i may ever have.

        `prefault` fills the slots of `publish` with memory now; synchronous runs, which seldom
        publish, can do without.
        """
        kind = np.dtype(dtype)
        if kind not in (np.float32, np.float64) or x0.shape != (size,):
            raise UserError(f"a model of {size} {kind} cannot start from an array of shape {x0.shape}")
        layout = MemoryLayout(tuple(tuple(those) for those in neighbours), size, kind.itemsize)
        slots = [(layout.slots_at(i), layout.slots(i) * layout.stride) for i in range(layout.n)]
        parts = [(0, layout.board_bytes + layout.stride), *(slots if prefault else [])]
        fd = create_file(layout.total_bytes, parts)
        os.pwrite(fd, np.ascontiguousarray(x0, kind).data, layout.x0)
        found = os.fstat(fd)
        return cls(layout, kind.str, os.getpid(), fd, (found.st_dev, found.st_ino), prefault)

    def __reduce__(self) -> tuple[object, ...]:
        return SharedMemory, (self.layout, self.dtype, self.creator, self.fd, self.identity, self.prefault)

    def connect(self, i: int) -> SharedMemoryTransport:
        """Client i's end, in the process that calls; again, after the client has died and restarts."""
        return SharedMemoryTransport(self, i)

    def observe(self) -> Observer:
        """An end that can read everybody's newest model; the slots are counted for one of these."""
        return Observer(self)

    # --- for the supervisor ----------------------------------------------------------------------

    @cached_property
    def _own(self) -> Observer:
        return Observer(self)

    @property
    def board(self) -> Words:
        """Everybody's words: `board.get(i, layout.STEPS)` and the like."""
        return self._own.board

    def mark_gone(self, i: int) -> None:
        """Client i has ended without finishing; call it after the process is dead. Wakes who waits."""
        self.board.put(i, at.GONE, 1)
        self.board.wake_waiters_for(i)

    def rejoin(self, i: int, from_round: int = 0) -> None:
        """Client i is started again; it takes part in rounds from this one (that nobody has reached)."""
        self.board.put(i, at.FROM_ROUND, from_round)
        self.board.put(i, at.FINISHED, 0)
        self.board.fence()
        self.board.put(i, at.GONE, 0)

    def stop(self) -> None:
        """Every call that has to wait raises Stopped from now on."""
        self.board.stop()

    def close(self) -> None:
        """The parent needs it no more. Clients that are connected keep it until they end."""
        own = self.__dict__.pop("_own", None)
        if own is not None:
            own.close()
        if self.fd >= 0 and os.getpid() == self.creator:
            os.close(self.fd)
            self.fd = -1


class Observer:
    """One process's view of the shared memory: everybody's words, newest models and cells."""

    def __init__(self, plan: SharedMemory) -> None:
        self.layout = plan.layout
        self.dtype = plan.dtype
        self.file = SharedFile(plan.creator, plan.fd, plan.identity)
        self.board = Words(self.layout, self.file.map(0, self.layout.board_bytes, writable=True))
        self.x0 = self._vectors(self.layout.x0, 1, populate=True)[0]
        self.slots: dict[int, Slots] = {}

    def _vectors(self, at: int, count: int, writable: bool = False, populate: bool = False) -> list[Vector]:
        layout = self.layout
        return self.file.vectors(at, count, layout.stride, layout.size, self.dtype, writable, populate)

    def _slots_of(self, k: int, populate: bool = False, writable: bool = False) -> Slots:
        if k not in self.slots:
            first, count, stride = self.layout.slots_at(k), self.layout.slots(k), self.layout.stride
            places = [self.x0, *self._vectors(first, count, writable, populate)]
            starts = [self.layout.x0, *range(first, first + count * stride, stride)]
            self.slots[k] = Slots(k, places, self._holds(k, starts), self.board)
        return self.slots[k]

    def _holds(self, k: int, starts: Sequence[int]) -> Holds:
        """Who reads client k's places, as this process sees and tells it."""
        if not FENCES_WORK:
            return HeldByLocks([ByteLock(self.file.fd, start) for start in starts])
        readers = [self.layout.holds(reader, k) for reader in (None, *self.layout.neighbours[k])]
        return HeldByWords(self.board, len(starts), self._hold_word(k), readers)

    def _hold_word(self, k: int) -> int | None:
        return self.layout.holds(None, k)

    def read(self, neighbour: int, use: Callable[[Vector, int], T]) -> T | None:
        """Call `use(model, version)` on a client's newest model, in place."""
        return self._slots_of(neighbour).read(use)

    def cell(self, k: int) -> Vector:
        """A copy of client k's cell."""
        return self.cells.copy(k)

    @cached_property
    def cells(self) -> SharedCells:
        return self._cells(-1, writable=False)

    def _cells(self, i: int, writable: bool) -> SharedCells:
        layout = self.layout
        cells = lru_cache(None)(lambda k: self._vectors(layout.cells_at(k), 2, writable))
        lock = lru_cache(None)(lambda k: ByteLock(self.file.fd, layout.cells_at(k)))
        return SharedCells(i, self.board, self.x0, cells, lock)

    def close(self) -> None:
        """Give everything back."""
        if self.file.fd < 0:
            return
        self.board.close()
        self.__dict__.pop("cells", None)
        self.slots.clear()
        del self.x0
        self.file.close()


class SharedMemoryTransport(Observer):
    """Client i's end (see `swiftfl.transports.base.Transport` for what each call promises)."""

    def __init__(self, plan: SharedMemory, i: int) -> None:
        super().__init__(plan)
        self.i = i
        self.neighbours = self.layout.neighbours[i]
        self._gone_words = [(k, self.layout.word(k, at.GONE)) for k in self.neighbours]
        self.own = self._slots_of(i, plan.prefault, writable=True)
        for k in self.neighbours:
            self._slots_of(k, plan.prefault)
        self.version = 0
        self.board.put(i, at.PID, os.getpid())
        self.board.put(i, at.INCARNATION, self.board.get(i, at.INCARNATION) + 1)
        self.beat(self.board.get(i, at.STEPS))

    def _hold_word(self, k: int) -> int | None:
        return None if k == self.i else self.layout.holds(self.i, k)

    # --- wait-free ---

    def publish(self, x: Vector, version: int) -> None:
        self._check_size(x)
        if version < self.version:
            raise ValueError(f"version {version} cannot come after version {self.version}")
        self.version = version
        self.own.write(x, version)

    def _check_size(self, x: Vector) -> None:
        if x.shape != (self.layout.size,):
            raise ValueError(f"a vector of shape {x.shape} is no model of {self.layout.size} numbers")

    def lost(self) -> frozenset[int]:
        words = self.board.words
        for _, word in self._gone_words:
            if words[word]:
                return frozenset(k for k, word in self._gone_words if words[word])
        return _NOBODY

    def beat(self, steps: int) -> None:
        """Tell the supervisor and the neighbours how far this client is, and that it lives."""
        self.board.put(self.i, at.STEPS, steps)
        self.board.put(self.i, at.HEARTBEAT, time.monotonic_ns())

    def finish(self) -> None:
        self.board.set(self.layout.word(self.i, at.FINISHED), 1)
        self.board.wake_waiters_for(self.i)

    @property
    def waited(self) -> float:
        return self.board.waited

    @property
    def stopping(self) -> bool:
        return self.board.stopping

    # --- waiting ---

    @cached_property
    def rounds(self) -> SharedRounds:
        offers = lru_cache(None)(lambda k: self._vectors(self.layout.offers_at(k), 2, writable=k == self.i))
        return SharedRounds(self.i, self.board, offers)

    def offer(self, x: Vector, round: int, to: Sequence[int]) -> None:
        self._check_size(x)
        self.rounds.offer(x, round, to)

    def collect(self, neighbour: int, round: int, use: Callable[[Vector], T]) -> T:
        return self.rounds.collect(neighbour, round, use)

    @cached_property
    def reduction(self) -> SharedReduction:
        given = lru_cache(None)(lambda k: self._vectors(self.layout.given_at(k), 2, writable=k == self.i))
        return SharedReduction(
            self.i, self.board, given, self._vectors(self.layout.sum_at, 1, writable=True)[0]
        )

    def all_reduce(self, value: Vector, weight: float, round: int) -> Vector:
        self._check_size(value)
        return self.reduction.mean(value, weight, round)

    @cached_property
    def cells(self) -> SharedCells:
        return self._cells(self.i, writable=True)

    def load(self) -> Vector:
        return self.cells.copy(self.i)

    def average_with(self, neighbour: int) -> Vector:
        return self.cells.average(neighbour)

    def add(self, move: Vector, statistics: Statistics | None) -> Vector:
        return self.cells.add(move, statistics)

    def close(self) -> None:
        if self.file.fd < 0:
            return
        del self.own
        for name in ("rounds", "reduction"):
            self.__dict__.pop(name, None)
        super().close()
