"""One client's end of a transport that passes messages; see `swiftfl.transports.base` for the promises."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import TypeVar

import numpy as np

from swiftfl.errors import UserError
from swiftfl.transports.base import Mean, SmallMessage
from swiftfl.transports.codec import Identity, MakeCodec
from swiftfl.transports.messages.barrier import MessageBarrier
from swiftfl.transports.messages.cells import RemoteCells
from swiftfl.transports.messages.newest import NewestReceiver, NewestSender
from swiftfl.transports.messages.progress import ProgressThread
from swiftfl.transports.messages.reduction import ROOT, MessageReduction
from swiftfl.transports.messages.rounds import MessageRounds
from swiftfl.transports.messages.small import SmallMessages
from swiftfl.transports.messages.wire import MODEL, NOTE, SHOWN, Wire
from swiftfl.vector import Statistics, Vector

T = TypeVar("T")


class MessageTransport:
    """Client i's end. One thread of the client at a time uses it; a thread of its own moves the messages.

    Besides models, each client sends notes to its neighbours and to the root of reductions: whether it has
    finished, with which version, and the last round that it offered to each neighbour.
    """

    def __init__(
        self,
        wire: Wire,
        neighbours: Sequence[Sequence[int]],
        x0: Vector,
        codec: MakeCodec = Identity,
        incarnation: int = 0,
        empty: bool = False,
        refusing: Callable[[int, str], None] | None = None,
        shown: Vector | None = None,
        clocks_agree: bool = True,
    ) -> None:
        """Mailboxes hold x0 at first, unless they are to be `empty`; what is shown to whoever evaluates is
        of the size of x0, or of `shown`. Who is started again has a larger
        `incarnation` than before, by which others know its messages from older ones. `refusing` is told of
        models that cannot be decoded, with their sender. Where the clocks of hosts need not agree, the age
        of a model counts from its arrival."""
        self._first_table, self._refusing = incarnation << 32, refusing
        self.i, self.n, self.neighbours = wire.rank, wire.size, tuple(neighbours[wire.rank])
        self._all = [tuple(those) for those in neighbours]
        self.size, self.dtype, self._x0 = x0.size, x0.dtype, x0
        self.codec, self._clocks_agree = codec(), clocks_agree
        self.progress = ProgressThread(wire)
        self.version = 0
        self.outside: Collection[int] = ()  # who takes no part now, and is not waited for
        self._own: tuple[Vector, int] = (x0, 0)
        self._models_out = NewestSender(self.progress, MODEL, x0, self.neighbours, self.codec, lazily=True)
        self._models = {
            k: NewestReceiver(self.progress, MODEL, k, x0, self.codec, empty, refusing)
            for k in self.neighbours
        }
        like = x0 if shown is None else shown
        self._shown_out = NewestSender(self.progress, SHOWN, like, [k for k in (ROOT,) if k != self.i])
        self.shown: Vector | None = None  # the root's own
        near = {*self.neighbours, ROOT} - {self.i}
        self._note = np.zeros(1 + max((len(those) for those in neighbours), default=0))
        self._notes_out = NewestSender(self.progress, NOTE, self._note, sorted(near))
        hears = set(range(self.n)) - {self.i} if self.i == ROOT else set(self.neighbours)
        self._notes = {k: NewestReceiver(self.progress, NOTE, k, self._note) for k in sorted(hears)}
        self.progress.start()

    # --- wait-free ---

    def publish(self, x: Vector, version: int) -> None:
        if x.shape != (self.size,) or x.dtype != self.dtype:
            raise ValueError(f"{x.dtype} of shape {x.shape} is no model of {self.size} {self.dtype}")
        if version < self.version:
            raise ValueError(f"version {version} cannot come after version {self.version}")
        self.progress.check()
        self.version = version
        self._own = (x, version)
        self._models_out.put(x, version)
        self.progress.begin_step()

    @property
    def published(self) -> tuple[Vector, int]:
        """The model that was published last, and its version."""
        return self._own

    def show(self, x: Vector, version: int) -> None:
        """To the root, which evaluates: it takes one model from each client whenever it asks for them."""
        if self.i == ROOT:
            self.shown = x
        self._shown_out.put(x, version, quiet=True)

    def read(self, neighbour: int, use: Callable[[Vector, int], T]) -> T | None:
        if neighbour == self.i:
            return use(*self._own)
        receiver = self._models.get(neighbour)
        if receiver is None:
            return None
        self.progress.glance()
        return receiver.read(use)

    def since_published(self, neighbour: int) -> float | None:
        """By the clocks of both hosts; or since its arrival, by this host's, where those need not agree."""
        receiver = self._models.get(neighbour)
        if receiver is None or receiver.published is None or receiver.arrived is None:
            return None
        if not self._clocks_agree:
            return time.monotonic() - receiver.arrived
        return max(0.0, time.time() - receiver.published)

    @cached_property
    def _small(self) -> SmallMessages:
        return SmallMessages(self.progress, self.neighbours, self._first_table, self._refusing)

    def tell(self, neighbour: int, message: SmallMessage) -> None:
        self._small.tell(neighbour, message)

    def heard(self, neighbour: int) -> list[SmallMessage]:
        return self._small.heard(neighbour)

    def lost(self) -> frozenset[int]:
        gone = self.progress.gone
        return frozenset(k for k in self.neighbours if k in gone) if gone else frozenset()

    @property
    def waited(self) -> float:
        return self.progress.waited

    def finish(self) -> None:
        offered = self.rounds.offered if "rounds" in self.__dict__ else {}
        self._note[0] = 1.0
        for place, k in enumerate(self.neighbours):
            self._note[1 + place] = offered.get(k, -1)
        self._notes_out.put(self._note, self.version)
        if "rounds" in self.__dict__:
            self.rounds.drain()
        if "meeting" in self.__dict__:
            self.meeting.pass_all()

    @property
    def refused(self) -> int:
        """Messages that were no models of this run."""
        return sum(receiver.refused for receiver in self._models.values())

    @property
    def models_in_memory(self) -> int:
        return self._models_out.slots + self._shown_out.slots + 2 * len(self._models)

    # --- the supervisor's part, in every process ---

    def mark_gone(self, i: int) -> None:
        self.progress.gone.add(i)
        self.progress.doorbell.wake()

    def mark_back(self, i: int) -> None:
        """Client i was gone and is here again, or has come: it gets the newest of everything."""
        self.progress.gone.discard(i)
        self._models_out.again(i)
        if "_small" in self.__dict__:
            self._small.again(i)
        self.progress.doorbell.wake()

    def stop(self) -> None:
        self.progress.stopped = True
        self.progress.doorbell.wake()

    # --- waiting ---

    def _finished(self, k: int) -> int | None:
        """The last round that k offered to this client, if it has finished and its last model is here."""
        note = self._note_of(k)
        if note is None or not note[0][0] or self._models[k].version < note[1]:
            return None
        return int(note[0][1 + self._all[k].index(self.i)])

    def _away(self, k: int) -> bool:
        if k in self.progress.gone or k in self.outside:
            return True
        note = self._note_of(k)
        return note is not None and bool(note[0][0])

    def _note_of(self, k: int) -> tuple[list[float], int] | None:
        receiver = self._notes.get(k)
        return None if receiver is None else receiver.read(lambda note, version: (note.tolist(), version))

    @cached_property
    def rounds(self) -> MessageRounds:
        return MessageRounds(self.progress, self._x0, self.codec, self._finished)

    def take_part_in_rounds(self) -> None:
        """From the start: neighbours' offers then also reach a client that finishes before its first one."""
        self.rounds.listen(self.neighbours)

    def offer(self, x: Vector, round: int, to: Sequence[int]) -> None:
        self.rounds.offer(x, round, to)

    def collect(self, neighbour: int, round: int, use: Callable[[Vector], T]) -> T:
        return self.rounds.collect(neighbour, round, use)

    @cached_property
    def reduction(self) -> MessageReduction:
        return MessageReduction(self.progress, self._x0, self._away)

    def all_reduce(self, value: Vector, weight: float, round: int) -> Mean:
        return self.reduction.mean(value, weight, round)

    @cached_property
    def meeting(self) -> MessageBarrier:
        return MessageBarrier(self.progress)

    def take_part_in_barriers(self) -> None:
        """From the start: who finishes before the first barrier can then tell the others to pass it."""
        _ = self.meeting

    def barrier(self, round: int) -> None:
        self.meeting.wait(round, self.outside)

    @cached_property
    def cells(self) -> RemoteCells:
        return RemoteCells(self.progress, self._x0, self.neighbours)

    def set_cell(self, x: Vector) -> None:
        self.cells.set(np.asarray(x))  # in host memory, where the thread of messages averages

    def load(self) -> Vector:
        return self.cells.load()

    def average_with(self, neighbour: int) -> Vector:
        if neighbour not in self.neighbours:
            raise UserError(f"client {neighbour} is no neighbour of client {self.i}")
        return self.cells.average_with(neighbour)

    def add(self, move: Vector, statistics: Statistics | None) -> Vector:
        return self.cells.add(move, statistics)

    @property
    def answers(self) -> int:
        return self.cells.answers if "cells" in self.__dict__ else 0

    # --- the end ---

    def flush(self, seconds: float) -> bool:
        """Wait, at most so long, until everybody has what was sent."""
        return self.progress.flush(seconds)

    def close(self) -> None:
        self.progress.close()
