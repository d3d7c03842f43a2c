"""Clients on one machine: models in shared memory, one copy to publish, none to read.

The parent makes the memory before it starts its clients; each client connects *after* its process
was forked. A fresh process is handed descriptors, and opens the plan with them. There is no server, no thread
and no named object: whatever happens to a process, the kernel frees its locks, and the memory goes
with the last process that uses it.

    plan = SharedMemory.create(neighbours, x0)                # in the parent
    transport = plan.connect(i)                               # in client i's process
    plan.mark_gone(i); plan.rejoin(i, round); plan.stop()     # the parent, as supervisor
    plan.observe().read(i, use)                               # the parent, to evaluate

One connection serves one thread.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, TypeVar

import numpy as np

from swiftfl.errors import UserError
from swiftfl.transports.base import Mean, SmallMessage, transport
from swiftfl.transports.codec import Identity, MakeCodec, is_exact, transmitted
from swiftfl.transports.shared_memory import layout as at
from swiftfl.transports.shared_memory.barrier import SharedBarrier
from swiftfl.transports.shared_memory.cells import SharedCells
from swiftfl.transports.shared_memory.file import ByteLock, SharedFile, create_file
from swiftfl.transports.shared_memory.holds import FENCES_WORK, HeldByLocks, HeldByWords, Holds
from swiftfl.transports.shared_memory.layout import MemoryLayout
from swiftfl.transports.shared_memory.reduction import SharedReduction
from swiftfl.transports.shared_memory.rounds import SharedRounds
from swiftfl.transports.shared_memory.slots import Slots
from swiftfl.transports.shared_memory.small import SharedSmallMessages
from swiftfl.transports.shared_memory.words import Words
from swiftfl.vector import Statistics, Vector

T = TypeVar("T")
_NOBODY: frozenset[int] = frozenset()
log = logging.getLogger(__name__)


@dataclass
class SharedMemory:
    """The plan of a run's shared memory: what a process needs in order to connect."""

    layout: MemoryLayout
    dtype: str
    creator: int
    fd: int
    identity: tuple[int, int]
    prefault: bool  # not where clients meet in rounds
    codec: MakeCodec = Identity
    shown: SharedMemory | None = None
    """Where a codec changes what neighbours get: a second memory, with the models as observers see them."""
    _opened: tuple[int, SharedView] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def create(
        cls,
        neighbours: Sequence[Sequence[int]],
        x0: Vector,
        codec: MakeCodec = Identity,
        in_rounds: bool = False,
    ) -> SharedMemory:
        """Clients in processes of one machine, for engine local.

        `neighbours[i]` are all that client i may ever have. The slots of `publish` are filled with
        memory now, except where clients meet in rounds and so seldom publish.
        """
        if x0.dtype not in (np.float32, np.float64) or x0.ndim != 1:
            raise UserError(f"a model is a vector of float32 or float64, not {x0.ndim}-d {x0.dtype}")
        layout = MemoryLayout(tuple(tuple(those) for those in neighbours), x0.size, x0.dtype.itemsize)
        slots = [(layout.slots_at(i), layout.slots(i) * layout.stride) for i in range(layout.n)]
        parts = [(0, layout.words_bytes + layout.stride), *([] if in_rounds else slots)]
        fd = create_file(layout.total_bytes, parts)
        os.pwrite(fd, np.ascontiguousarray(x0).data, layout.x0)
        found = os.fstat(fd)
        shown = None if is_exact(codec()) else cls.create([()] * layout.n, x0, Identity, in_rounds)
        log.debug("%d clients share %.1f MB", layout.n, layout.total_bytes / 1e6)
        identity = (found.st_dev, found.st_ino)
        return cls(layout, x0.dtype.str, os.getpid(), fd, identity, not in_rounds, codec, shown)

    def described(self) -> dict[str, Any]:
        """What a fresh process has to be told, in plain JSON, besides being handed the `files`."""
        about = {"neighbours": self.layout.neighbours, "size": self.layout.size}
        return {**about, "dtype": self.dtype, "prefault": self.prefault}

    @property
    def files(self) -> list[int]:
        """The descriptors of the memory."""
        return [self.fd, *([] if self.shown is None else self.shown.files)]

    @classmethod
    def opened(
        cls, about: Mapping[str, Any], files: Sequence[int], codec: MakeCodec = Identity
    ) -> SharedMemory:
        """The plan in a process that was handed these descriptors."""
        dtype, shown = np.dtype(about["dtype"]), None
        layout = MemoryLayout(tuple(map(tuple, about["neighbours"])), about["size"], dtype.itemsize)
        if len(files) > 1:
            shown = cls.opened({**about, "neighbours": [()] * layout.n}, files[1:])
        found = os.fstat(files[0])
        identity = (found.st_dev, found.st_ino)
        return cls(layout, dtype.str, os.getpid(), files[0], identity, about["prefault"], codec, shown)

    def connect(self, i: int) -> SharedMemoryTransport:
        """Client i's end, in the process that calls; again, after the client has died and restarts."""
        return SharedMemoryTransport(self, i)

    def observe(self) -> SharedObserver:
        """An end that can read everybody's newest model; the slots are counted for one of these."""
        return SharedObserver(self.shown or self)

    # --- for the supervisor ----------------------------------------------------------------------

    @property
    def words(self) -> Words:
        """Everybody's words, opened in this very process: a forked one must not use its parent's."""
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = (os.getpid(), SharedView(self, None))
        return self._opened[1].words

    def mark_gone(self, i: int) -> None:
        """Client i has ended without finishing; call it after the process is dead. Wakes who waits."""
        self.words.put(i, at.GONE, 1)
        self.words.wake_waiters_for(i)

    def rejoin(self, i: int, from_round: int = 0) -> None:
        """Client i is started again; it takes part in rounds from this one (that nobody has reached)."""
        self.words.put(i, at.FROM_ROUND, from_round)
        self.words.put(i, at.FINISHED, 0)
        self.words.fence()
        self.words.put(i, at.GONE, 0)

    def stop(self) -> None:
        """Every call that has to wait raises Stopped from now on."""
        self.words.stop()

    @property
    def models_in_memory(self) -> int:
        """The slots of all clients."""
        own = sum(self.layout.slots(i) for i in range(self.layout.n))
        return own + (0 if self.shown is None else self.shown.models_in_memory)

    def close(self) -> None:
        """The parent needs it no more. Clients that are connected keep it until they end."""
        if self._opened is not None and self._opened[0] == os.getpid():
            self._opened[1].close()
        self._opened = None
        if self.fd >= 0 and os.getpid() == self.creator:
            os.close(self.fd)
            self.fd = -1
        if self.shown is not None:
            self.shown.close()


transport("shared_memory")(SharedMemory.create)


class SharedView:
    """The shared memory as one process has opened it, to read as client `reader` (None: as the observer)."""

    def __init__(self, plan: SharedMemory, reader: int | None) -> None:
        self.layout, self.dtype, self.reader = plan.layout, plan.dtype, reader
        self.file = SharedFile(plan.creator, plan.fd, plan.identity)
        self.words = Words(self.layout, self.file.map(0, self.layout.words_bytes, writable=True))
        self.x0 = self.vectors(self.layout.x0, 1, populate=True)[0]
        self.slots: dict[int, Slots] = {}

    def vectors(self, at: int, count: int, writable: bool = False, populate: bool = False) -> list[Vector]:
        layout = self.layout
        return self.file.vectors(at, count, layout.stride, layout.size, self.dtype, writable, populate)

    def slots_of(self, k: int, populate: bool = False) -> Slots:
        """Where client k publishes; written by k alone."""
        if k not in self.slots:
            first, count, stride = self.layout.slots_at(k), self.layout.slots(k), self.layout.stride
            places = [self.x0, *self.vectors(first, count, k == self.reader, populate)]
            starts = [self.layout.x0, *range(first, first + count * stride, stride)]
            self.slots[k] = Slots(k, places, self._holds(k, starts), self.words)
        return self.slots[k]

    def _holds(self, k: int, starts: Sequence[int]) -> Holds:
        """Who reads client k's places, as this process sees and tells it."""
        if not FENCES_WORK:
            return HeldByLocks([ByteLock(self.file.fd, start) for start in starts])
        readers = [self.layout.holds(reader, k) for reader in (None, *self.layout.neighbours[k])]
        own = None if k == self.reader else self.layout.holds(self.reader, k)
        return HeldByWords(self.words, len(starts), own, readers)

    def close(self) -> None:
        """Give everything back."""
        if self.file.fd < 0:
            return
        self.words.close()
        self.slots.clear()
        del self.x0
        self.file.close()


class SharedObserver:
    """The end of whoever evaluates: everybody's newest model."""

    def __init__(self, plan: SharedMemory) -> None:
        self._view = SharedView(plan, None)

    def read(self, client: int, use: Callable[[Vector, int], T]) -> T | None:
        """Call `use(model, version)` on a client's newest model, in place."""
        return self._view.slots_of(client).read(use)

    def close(self) -> None:
        self._view.close()


class SharedMemoryTransport:
    """Client i's end (see `swiftfl.transports.base.Transport` for what each call promises)."""

    def __init__(self, plan: SharedMemory, i: int) -> None:
        self.i, self.view = i, SharedView(plan, i)
        self.layout, self.words = self.view.layout, self.view.words
        self.neighbours = self.layout.neighbours[i]
        self.codec = plan.codec()
        self._shown = None if plan.shown is None else SharedMemoryTransport(plan.shown, i)
        self._in_rounds = not plan.prefault
        self._gone_words = [(k, self.layout.word(k, at.GONE)) for k in self.neighbours]
        self.own = self.view.slots_of(i, populate=plan.prefault)
        for k in self.neighbours:
            self.view.slots_of(k, populate=plan.prefault)
        self.version = 0
        self._answers = self.words.get(i, at.ANSWERS)  # of earlier ends

    # --- wait-free ---

    def publish(self, x: Vector, version: int) -> None:
        self._check_size(x)
        if version < self.version:
            raise ValueError(f"version {version} cannot come after version {self.version}")
        self.version = version
        self.own.write(transmitted(self.codec, x), version)
        if self._shown is not None:
            self._shown.publish(x, version)

    def show(self, x: Vector, version: int) -> None:
        """Where neighbours and observers see the same, neighbours may read it, too.

        And where clients meet in rounds, as nothing else stands there: who joins starts from it.
        """
        self._check_size(x)
        if self._shown is not None:
            self._shown.own.write(x, version)
        if self._shown is None or self._in_rounds:
            self.own.write(x, version)

    def _check_size(self, x: Vector) -> None:
        if x.shape != (self.layout.size,):
            raise ValueError(f"a vector of shape {x.shape} is no model of {self.layout.size} numbers")

    def read(self, neighbour: int, use: Callable[[Vector, int], T]) -> T | None:
        return self.view.slots_of(neighbour).read(use)

    def since_published(self, neighbour: int) -> float | None:
        published = self.view.slots_of(neighbour).published
        return time.monotonic() - published if published else None

    @cached_property
    def _small(self) -> SharedSmallMessages:
        return SharedSmallMessages(self.i, self.words)

    def tell(self, neighbour: int, message: SmallMessage) -> None:
        self._small.tell(neighbour, message)

    def heard(self, neighbour: int) -> list[SmallMessage]:
        return self._small.heard(neighbour)

    def lost(self) -> frozenset[int]:
        values = self.words.values
        for _, word in self._gone_words:
            if values[word]:
                return frozenset(k for k, word in self._gone_words if values[word])
        return _NOBODY

    def finish(self) -> None:
        self.words.set(self.layout.word(self.i, at.FINISHED), 1)
        self.words.wake_waiters_for(self.i)

    @property
    def waited(self) -> float:
        return self.words.waited

    # --- waiting ---

    @cached_property
    def rounds(self) -> SharedRounds:
        view, layout = self.view, self.layout
        offers = lru_cache(None)(lambda k: view.vectors(layout.offers_at(k), 2, writable=k == self.i))
        return SharedRounds(self.i, self.words, offers)

    def offer(self, x: Vector, round: int, to: Sequence[int]) -> None:
        self._check_size(x)
        self.rounds.offer(transmitted(self.codec, x), round, to)

    def collect(self, neighbour: int, round: int, use: Callable[[Vector], T]) -> T:
        return self.rounds.collect(neighbour, round, use)

    @cached_property
    def reduction(self) -> SharedReduction:
        view, layout = self.view, self.layout
        given = lru_cache(None)(lambda k: view.vectors(layout.given_at(k), 2, writable=k == self.i))
        return SharedReduction(self.i, self.words, given, view.vectors(layout.sum_at, 1, writable=True)[0])

    def all_reduce(self, value: Vector, weight: float, round: int) -> Mean:
        self._check_size(value)
        return self.reduction.mean(value, weight, round)

    def barrier(self, round: int) -> None:
        SharedBarrier(self.i, self.words).wait(round)

    @cached_property
    def cells(self) -> SharedCells:
        view, layout = self.view, self.layout
        cells = lru_cache(None)(lambda k: view.vectors(layout.cells_at(k), 2, writable=True))
        lock = lru_cache(None)(lambda k: ByteLock(view.file.fd, layout.cells_at(k)))
        return SharedCells(self.i, self.words, view.x0, cells, lock)

    def set_cell(self, x: Vector) -> None:
        self._check_size(x)
        self.cells.set(x)

    def load(self) -> Vector:
        return self.cells.copy(self.i)

    def average_with(self, neighbour: int) -> Vector:
        return self.cells.average(neighbour)

    def add(self, move: Vector, statistics: Statistics | None) -> Vector:
        return self.cells.add(move, statistics)

    @property
    def answers(self) -> int:
        return self.words.get(self.i, at.ANSWERS) - self._answers

    def close(self) -> None:
        for name in ("rounds", "reduction", "cells", "own"):
            self.__dict__.pop(name, None)
        self.view.close()
        if self._shown is not None:
            self._shown.close()
