"""What live clients tell of themselves (`record/facts`): each its own steps; the engine how all stand."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np

from swiftfl.engines.live.inbox import REASONS
from swiftfl.engines.live.status import ABSENT, FINISHED, HOLDING, RUNNING, STOPPED, StatusTable
from swiftfl.errors import UserError
from swiftfl.record.facts import CLIENT, ClientState, StepsWriter, Table, TableFile, no_edges
from swiftfl.record.facts.format import EDGES

_EVERY = 0.5  # seconds between two writes


@dataclass(frozen=True)
class FactsPlan:
    """Where clients write their facts, how many bytes each may use, and whom each may have as a neighbour."""

    folder: Path
    bytes_each: int
    neighbourhoods: list[tuple[int, ...]]


class StepFacts:
    """The facts of one client. A step only adds to a buffer; twice a second it is written, in one call.

    What the disk does not take is a warning, once, and no further facts of this client: training goes on.
    """

    def __init__(self, plan: FactsPlan, client: int, warn: Callable[[str], None]) -> None:
        self._plan, self._client, self._warn = plan, client, warn
        self.look: Callable[[Iterable[int]], Mapping[int, tuple[int, float]]] = lambda neighbours: {}
        """Tells of each neighbour its newest model, and since when that is there, by `time.perf_counter`."""
        self._neighbours = plan.neighbourhoods[client]
        self._place = [0, *accumulate(map(len, plan.neighbourhoods))][client]
        self._newest = no_edges(len(self._neighbours))
        self._steps: StepsWriter | None = None
        self._edges: TableFile | None = None
        self._origin = 0.0
        self._due = math.inf

    def begin(self, origin: float) -> None:
        """The run's clock showed zero at `origin`, by `time.perf_counter`."""
        self._origin, self._due = origin, time.perf_counter() + _EVERY
        try:
            self._plan.folder.mkdir(exist_ok=True)
            self._steps = StepsWriter(self._plan.folder, str(self._client), self._plan.bytes_each)
            self._edges = TableFile(self._plan.folder / EDGES)
        except (UserError, OSError) as error:
            self._give_up(error)

    def add(
        self,
        c: int,
        began: float,
        compute: float,
        waiting: float,
        communication: float,
        loss: float,
        age: float,
        now: float,
    ) -> None:
        if self._steps is None:
            return
        start = began - self._origin
        self._steps.add_row((self._client, c, loss, start, max(0.0, compute), waiting, communication, age))
        if now >= self._due:
            self._write()
            self._due = now + _EVERY

    def _write(self) -> None:
        assert self._steps is not None
        assert self._edges is not None
        try:
            self._steps.flush()
            if self._neighbours:
                self._look_at_neighbours()
                self._edges.write(self._newest, self._place)
        except UserError as error:
            self._give_up(error)

    def _look_at_neighbours(self) -> None:
        found = self.look(self._neighbours)
        for place, k in enumerate(self._neighbours):
            if k in found:
                c, since = found[k]
                self._newest[place] = (c, since - self._origin)

    def close(self) -> None:
        """Write what is left; may be called again."""
        if self._steps is not None:
            self._write()
        if self._steps is not None and self._edges is not None:
            self._steps.close()
            self._edges.close()
            self._steps = None

    def _give_up(self, error: Exception) -> None:
        self._steps = None
        self._warn(f"client {self._client} records no more facts: {error}; training goes on")


def client_records(
    status: StatusTable,
    now: float,
    lost: Collection[int],
    absent: Collection[int],
    returned: Collection[int],
) -> Table:
    """How each client stands; `returned` are those that were lost before, and started again."""
    records = np.zeros(status.n, CLIENT)
    for name in ("c", "steps", "compute", "communication", "waiting", "loss", "discarded", "renewals"):
        records[name] = status.column(name)
    records["refused"] = np.sum([status.column(reason) for reason in REASONS], axis=0)
    counts = np.array(status.column("age_count"))
    records["age"] = np.nan
    some = counts > 0
    records["age"][some] = np.array(status.column("age_sum"))[some] / counts[some]
    records["loss"][records["steps"] == 0] = np.nan
    records["state"] = [_state(i, status, lost, absent, returned) for i in range(status.n)]
    records["time"] = now
    return records


def _state(
    i: int,
    status: StatusTable,
    lost: Collection[int],
    absent: Collection[int],
    returned: Collection[int],
) -> ClientState:
    phase = status.phase(i)
    if i in lost:
        return ClientState.LOST
    if phase == FINISHED:
        return ClientState.FINISHED
    if phase == STOPPED or (i in absent and phase not in (ABSENT, RUNNING, HOLDING)):
        return ClientState.STOPPED
    if phase in (RUNNING, HOLDING):
        return ClientState.BACK if i in returned else ClientState.RUNNING
    return ClientState.STARTING
