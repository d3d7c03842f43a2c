"""What a simulated run tells of its steps, its clients and their mailboxes (`record/facts`)."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from itertools import chain
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from swiftfl.engines.simulation.record import ClientRecord
from swiftfl.engines.simulation.world import World
from swiftfl.record.facts import CLIENT, EDGE, ROW, ClientState, Table, no_edges

_NUMBERS = 8  # per step, in the buffer
_pack = Struct(f"{_NUMBERS}d").pack  # whose bytes an array takes sooner than it takes numbers
_TIMES = ("compute", "waiting", "communication")


class StepBuffer:
    """The steps that clients have ended since they were last taken.

    At the end of a step only the client's clock is copied; what the step itself took is worked out for many
    steps together. Where nothing takes time, the clock is the number of all steps, and each step takes one.
    """

    def __init__(self, world: World, taken: NDArray[np.float64] | None = None) -> None:
        """`taken` is what rows of earlier sessions hold of each client's time, (clients, 3)."""
        self._timed = world.timed_gradients
        self._world = world
        self._buffer = array("d")
        self._add = self._buffer.frombytes
        self._before = _clocks(world) if taken is None else taken
        world.step_ends = self._timed_step if self._timed else self._counted_step

    def _timed_step(self, record: ClientRecord) -> None:
        clock = record.clock
        self._add(
            _pack(record.index, record.start.c, record.loss, record.age, clock.now, clock.compute,
                  clock.waiting, clock.communication)
        )  # fmt: skip
        record.age = math.nan

    def _counted_step(self, record: ClientRecord) -> None:
        count = self._world.iteration
        self._add(_pack(record.index, record.start.c, record.loss, record.age, count, 1.0, 0.0, 0.0))
        record.age = math.nan

    def take(self) -> Table:
        """The rows since the last call, in the order in which their steps ended."""
        numbers = np.frombuffer(self._buffer, np.float64).reshape(-1, _NUMBERS).copy()
        del self._buffer[:]
        rows = np.zeros(len(numbers), ROW)
        rows["steps"] = 1
        for column, name in enumerate(("client", "c", "loss", "age")):
            rows[name] = numbers[:, column]
        spent = self._differences(numbers) if self._timed else numbers[:, 5:]
        spent = np.maximum(spent, 0.0)  # but for rounding it never is negative
        for column, name in enumerate(_TIMES):
            rows[name] = spent[:, column]
        rows["start"] = np.maximum(numbers[:, 4] - spent.sum(axis=1), 0.0)
        return rows

    def _differences(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """What of each kind of time has come since the client's step before."""
        clients = numbers[:, 0].astype(np.intp)
        order = np.argsort(clients, kind="stable")
        totals, of = numbers[order, 5:], clients[order]
        before = np.empty_like(totals)
        before[1:] = totals[:-1]
        first = np.ones(len(of), bool)
        first[1:] = of[1:] != of[:-1]
        before[first] = self._before[of[first]]
        last = np.append(first[1:], True)[: len(of)]
        self._before[of[last]] = totals[last]
        spent = np.empty_like(totals)
        spent[order] = totals - before
        return spent


def client_records(world: World, started: bool) -> Table:
    """How each client stands."""
    timed = world.timed_gradients
    records = np.zeros(world.n, CLIENT)
    for i, r in enumerate(world.records):
        clock = r.clock
        records[i] = (
            _state(r, started),
            r.start.c,
            r.steps,
            clock.compute if timed else r.steps,
            clock.communication,
            clock.waiting,
            r.loss,
            r.age_sum / r.age_count if r.age_count else math.nan,
            0.0,
            0,
            r.discarded,
            r.renewals,
            world.now if timed else world.iteration,
        )
    return records


def edge_records(world: World, indptr: Sequence[int], indices: Sequence[int]) -> Table:
    """The newest model over each directed edge; for clients that meet in rounds, that of their last one."""
    records = no_edges(len(indices))
    if world.in_rounds:
        degrees = np.diff(np.asarray(indptr))
        rounds = np.array([r.start.c - 1 if r.steps else -1 for r in world.records])
        began = np.array([r.began if r.steps else math.nan for r in world.records])
        records["version"], records["since"] = np.repeat(rounds, degrees), np.repeat(began, degrees)
        return records
    if not world.timed_gradients:
        last = [versions[-1] if versions else None for versions in world.mailboxes.versions]
        newest = [(-1, math.nan) if v is None else (v.number, max(0.0, v.since)) for v in last]
        return _of_publishers(newest, indices)
    everywhere = world.mailboxes.arrivals_everywhere(world.now)
    if everywhere is not None:
        return _of_publishers(everywhere, indices)
    for i in range(world.n):
        begin, end = indptr[i], indptr[i + 1]
        records[begin:end] = world.mailboxes.arrivals(i, indices[begin:end], world.now)
    return records


def _of_publishers(newest: Sequence[tuple[int, float]], indices: Sequence[int]) -> Table:
    """For each edge what is known of its publisher."""
    found: Table = np.array(newest, EDGE)[np.asarray(indices, np.intp)]
    return found


def _state(record: ClientRecord, started: bool) -> ClientState:
    if record.finished:
        return ClientState.FINISHED
    if not record.present:
        has_left = ClientState.STOPPED if record.steps or record.lost_until else ClientState.STARTING
        return ClientState.LOST if record.was_lost else has_left
    if not started or record.selecting:
        return ClientState.STARTING
    return ClientState.BACK if record.was_lost else ClientState.RUNNING


def _clocks(world: World) -> NDArray[np.float64]:
    clocks = (record.clock for record in world.records)
    numbers = chain.from_iterable((clock.compute, clock.waiting, clock.communication) for clock in clocks)
    return np.fromiter(numbers, np.float64, 3 * world.n).reshape(-1, 3)
