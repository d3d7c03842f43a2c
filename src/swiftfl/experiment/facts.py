"""Facts of a run (`record/facts`), written by the run loop: how clients stand and, of simulated ones, steps.

Live clients write their own steps (`engines/live/facts.py`).
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from itertools import accumulate, chain
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from swiftfl.engines.engine import Engine, SimulatedEngine
from swiftfl.engines.live.facts import FactsPlan
from swiftfl.engines.membership import possible_neighbours
from swiftfl.engines.setup import Setup
from swiftfl.errors import UserError
from swiftfl.experiment.config import Config
from swiftfl.experiment.recorder import remove_facts
from swiftfl.record.facts import FACTS, ClientState, FactsReader, FactsWriter, Layout, Table, TableFile
from swiftfl.record.facts.format import CLIENTS
from swiftfl.record.facts.writer import keep_steps

_EVERY = 0.5  # seconds between two writes, at least,
_SHARE = 30  # and as many times what the clients' states took the last time: of a million it is seconds,
_AT_MOST = 300.0  # but no more than so many, after a disk that hung or a process that was stopped
_RATE_OVER = 8  # writes
_SHARE_OF_EDGES = 100  # edges are looked at for at most one part in so many of the time
_CLOCKS = {"virtual": "virtual", "sampled": "iterations"}
_GOING_ON = (ClientState.STARTING, ClientState.RUNNING, ClientState.BACK)


def facts_plan(config: Config, setup: Setup, folder: Path | None) -> FactsPlan | None:
    """Where the clients of a live run write their steps; None if they do not."""
    if folder is None or not config.record.facts:
        return None
    near = possible_neighbours(setup.weights, None if setup.network is None else setup.network())
    return FactsPlan(folder / FACTS, _limit(config) // setup.n, near)


class FactsRecorder:
    """Writes the facts of a run folder while its engine goes on.

    Every call may be a `UserError` of the disk. What was not taken then is missing; the next may be taken.
    """

    def __init__(self, run: Path, engine: Engine, config: Config, total: int) -> None:
        before = FactsWriter.read_layout(run)
        near = engine.neighbourhoods()
        clock = _CLOCKS.get(engine.name, "wall")
        self.layout = Layout(
            clients=engine.n,
            engine=engine.name,
            clock=clock,
            began=time.time() - (engine.now if clock == "wall" else 0.0) if before is None else before.began,
            total=total,
            indptr=(0, *accumulate(map(len, near))),
            indices=tuple(chain.from_iterable(near)),
            session=1 if before is None else before.session + 1,
        )
        self._run, self._engine = run, engine
        self._simulated = cast(SimulatedEngine, engine) if engine.name in _CLOCKS else None
        records = engine.client_records()
        if self._simulated is not None and before is not None:
            keep_steps(run, records["c"].astype(np.int64))
        self._writer = FactsWriter(run, self.layout, _limit(config))
        self._steps = self._writer.steps()
        if self._simulated is not None:
            self._simulated.record_steps(None if before is None else _time_on_record(run, records))
        self._past: deque[tuple[NDArray[np.float64], NDArray[np.float64]]] = deque(maxlen=_RATE_OVER)
        self._due = self._edges_due = 0.0
        self.write()

    def tick(self) -> None:
        """Write, if it is time for that."""
        if time.monotonic() >= self._due:
            self.write()

    def write(self, at_the_end: ClientState | None = None) -> None:
        """Write everything as it is; `at_the_end` is what becomes of clients that still go on."""
        began = time.monotonic()
        self._due = began + _EVERY  # whatever happens below
        records = self._engine.client_records()
        records["rate"] = self._rates(records)
        took = time.monotonic() - began
        if at_the_end is not None and self._simulated is not None:
            records["state"][np.isin(records["state"], _GOING_ON)] = at_the_end
        if self._simulated is not None:
            self._steps.write(self._simulated.take_steps())
            looked = time.monotonic()
            if looked >= self._edges_due or at_the_end is not None:
                self._writer.edges.write(
                    self._simulated.edge_records(self.layout.indptr, self.layout.indices)
                )
                self._edges_due = looked + _SHARE_OF_EDGES * (time.monotonic() - looked)
        wrote = time.monotonic()
        self._writer.clients.write(records)
        now = time.monotonic()
        # What steps take is left out: the longer the interval, the more of them there are.
        self._due = max(began + _EVERY, now + min(_SHARE * (took + now - wrote), _AT_MOST))

    def close(self, at_the_end: ClientState) -> None:
        """Write the last word."""
        try:
            self.write(at_the_end)
        finally:
            self._steps.close()
            self._writer.close()

    def gave_way(self, problem: str) -> bool:
        """Remove the facts of a simulated run where the disk is too full for its checkpoint; whether it was.

        Then no more of them are written. Live clients save themselves, and write their own facts.
        """
        if self._simulated is None or not remove_facts(self._run, problem, "a checkpoint"):
            return False
        self._simulated.forget_steps()
        for part in (self._steps, self._writer):  # until they are closed, files take room
            with contextlib.suppress(UserError):
                part.close()
        return True

    def _rates(self, records: Table) -> NDArray[np.float64]:
        """Steps per second of the run's clock, over the last few writes, of those who go on."""
        times, counts = records["time"].copy(), records["steps"].astype(np.float64)
        self._past.append((times, counts))
        first_times, first_counts = self._past[0]
        seconds, steps = times - first_times, counts - first_counts
        rates = np.divide(steps, seconds, out=np.zeros(len(records)), where=seconds > 0)
        return np.where(np.isin(records["state"], _GOING_ON), np.maximum(rates, 0.0), 0.0)


def write_last_word(run: Path, engine: Engine) -> None:
    """How clients stand at the end, where whoever wrote it before is lost."""
    if (run / FACTS).is_dir():
        clients = TableFile(run / FACTS / CLIENTS)
        clients.write(engine.client_records())
        clients.close()


def _limit(config: Config) -> int:
    return config.record.facts_megabytes * 1_000_000


def _time_on_record(run: Path, records: Table) -> NDArray[np.float64]:
    """How much of each client's time rows hold, (clients, 3); where rows are missing, all of it.

    Rows were written before the save from which the run goes on, unless the machine went down.
    """
    names, n = ("compute", "waiting", "communication"), len(records)
    rows = FactsReader(run).rows()
    held = np.stack([np.bincount(rows["client"], rows[name].astype(np.float64), n) for name in names], axis=1)
    complete = np.bincount(rows["client"], rows["steps"], n) == records["steps"]
    totals = np.stack([records[name] for name in names], axis=1)
    return np.where(complete[:, None], held, totals)
