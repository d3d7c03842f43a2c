"""One run folder, as it is shown: replies of plain values, which ARCHITECTURE.md lists."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from swiftfl.errors import UserError
from swiftfl.lock import LOCK
from swiftfl.record.facts import FACTS, NO_VERSION, ClientState, Layout, Table
from swiftfl.views.curves import ClientCurves, measured
from swiftfl.views.distances import Distances
from swiftfl.views.graph import MOST_EDGES, graph_of
from swiftfl.views.reading import LinesFile, Mark, ObjectFile, beginning_of, mark_of, number
from swiftfl.views.steps import Steps
from swiftfl.views.stream import Stream
from swiftfl.views.tables import (
    Reply,
    as_objects,
    entry_of,
    finite_list,
    part_of,
    staleness,
    steps_done,
    text_or_none,
    weights_of_node,
)

MOST_EVENTS = 2000
"""Events of one reply, and marks in a stream."""
_NEWEST_ROWS = 200
_SILENT = 60.0  # seconds without a change, after which a run of another host is not called running
_ALIVE = 5.0  # seconds since the last change in which somebody must be writing, whatever the lock says
_OBJECTS = ("config", "versions", "partition", "summary")
_UNMARKED = ("start", "checkpoint", "end")
_GOING_ON = ("starting", "running", "back")
_COLUMNS = ("c", "steps", "rate", "loss", "age", "compute", "communication", "waiting",
            "refused", "discarded", "renewals")  # fmt: skip


_whatever_numbers = np.errstate(all="ignore")
"""Files may hold any bits, such as signalling NaNs: what is not finite is None, without a warning."""


class MissingError(UserError):
    """What was asked for is not there."""


class RunView:
    """What is to be seen of a run folder, finished or not; the folder is only ever read.

    Every reply is up to date when it is asked for. Threads may ask at the same time.
    """

    def __init__(self, path: Path, name: str | None = None) -> None:
        self.path = path
        self.name = name or path.resolve().name
        self.id = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:16]
        self._lock, self._drawing = threading.RLock(), threading.Lock()
        self._objects = {name: ObjectFile(path / f"{name}.json") for name in (*_OBJECTS, "status")}
        self._metrics, self._events = LinesFile(path / "metrics.jsonl"), LinesFile(path / "events.jsonl")
        self._distances = Distances(path)
        self._steps: Steps | None = None
        self._stream: Stream | None = None
        self._client_curves: ClientCurves | None = None
        self._graph: tuple[object, Reply] | None = None

    # --- replies ---------------------------------------------------------------------------------

    def card(self) -> Reply:
        """What a list of runs has of it."""
        with self._lock:
            config, layout = self._object("config") or {}, self._layout()
            engine, algorithm, topology = (
                part_of(config, name) for name in ("engine", "algorithm", "topology")
            )
            clients = topology.get("clients") if layout is None else layout.clients
            return {
                "id": self.id,
                "name": self.name,
                "path": str(self.path),
                "state": self.state(),
                "engine": text_or_none(engine.get("name")),
                "algorithm": text_or_none(algorithm.get("name")),
                "clients": clients if isinstance(clients, int) else None,
                "updated": self.updated(),
            }

    def about(self) -> Reply:
        """The run as it was asked for, and who is whose neighbour."""
        graph = self._drawn()[1]
        return {**self.card(), **self.about_files(), "layout": self.layout(), "graph": graph}

    def layout(self) -> Reply | None:
        """Who takes part, by which clock; None where the run writes no facts."""
        with self._lock:
            layout = self._layout()
        if layout is None:
            return None
        known = ("clients", "engine", "clock", "total", "began")
        reply = {name: getattr(layout, name) for name in known}
        return {
            **reply,
            "names": list(layout.names),
            "near": list(layout.neighbours(0)) if layout.names else [],
        }

    def measurements(self) -> dict[str, list[float | None]]:
        """What was measured of the consensus, as columns."""
        with self._lock:
            self._metrics.poll()
            return measured(self._metrics.rows)

    def about_files(self) -> Reply:
        """Configuration, versions, partition and summary as their files have them, or None."""
        with self._lock:
            return {name: self._object(name) for name in _OBJECTS}

    @_whatever_numbers
    def curves(self) -> Reply:
        with self._lock:
            self._metrics.poll()
            columns = measured(self._metrics.rows)
            return {"columns": columns, "clients": self._curves_of_clients(columns)}

    def events(self, after: int = 0) -> Reply:
        """Events from number `after` on, at most `MOST_EVENTS`."""
        with self._lock:
            self._events.poll()
            total = len(self._events.rows)
            first = after if 0 <= after <= total else 0
            events = self._events.rows[first : first + MOST_EVENTS]
            return {"first": first, "next": first + len(events), "total": total, "events": events}

    @_whatever_numbers
    def now(self) -> Reply | None:
        """How every client stands; None where the run writes no facts."""
        with self._lock:
            layout = self._layout()
            if layout is None:
                return None
            clients, edges = self._tables(layout)
            columns: dict[str, list[Any]] = {"state": self._state_words(clients["state"].tolist())}
            for name in _COLUMNS:
                columns[name] = finite_list(clients[name])
            columns["stale"] = staleness(layout, clients, edges)
            columns["distance"] = self._distances.of(layout.clients)
            told = edges if layout.edges <= MOST_EDGES else edges[:0]
            version = [None if v == NO_VERSION else v for v in told["version"].tolist()]
            return {
                "time": self._time(clients),
                "done": steps_done(clients),
                "columns": columns,
                "edges": {"version": version, "since": finite_list(told["since"])},
                "weights": weights_of_node(layout, self._object("status")),
            }

    @_whatever_numbers
    def stream(
        self,
        begin: object = None,
        end: object = None,
        bins: object = None,
        first: object = None,
        last: object = None,
    ) -> Reply | None:
        """Who did what when (`views/stream.py`); None where the run writes no facts."""
        with self._lock:
            layout, steps = self._layout(), self._polled()
            if layout is None or steps is None:
                return None
            if self._stream is None:
                self._stream = Stream(steps, layout.clients)
            until = self._time(self._tables(layout)[0]) if self.state() == "running" else 0.0
            window = self._stream.window(begin, end, bins, first, last, until)
            reply = self._stream.reply(window, until)
            return {**reply, "marks": self._marks(reply["from"], reply["to"], window.first, window.last)}

    @_whatever_numbers
    def client(self, index: int) -> Reply:
        """One client: its neighbours, its newest steps, its events."""
        graph = self._drawn()[1]
        with self._lock:
            layout, partition = self._layout(), self._object("partition") or {}
            sizes = partition.get("sizes")
            count = layout.clients if layout is not None else len(sizes) if isinstance(sizes, list) else 0
            if not 0 <= index < count:
                raise MissingError(f"there is no client {index} in a run of {count}")
            self._events.poll()
            reply: Reply = {
                "client": index,
                "samples": entry_of(sizes, index),
                "labels": entry_of(partition.get("histogram"), index),
                "now": None,
                "neighbours": [],
                "rows": [],
                "events": [row for row in self._events.rows if row.get("client") == index][-MOST_EVENTS:],
            }
            if layout is not None:
                clients, edges = self._tables(layout)
                reply["now"] = {
                    "state": self._state_words(clients["state"].tolist())[index],
                    **{name: number(clients[name][index].item()) for name in _COLUMNS},
                }
                reply["neighbours"] = self._neighbours(layout, edges, index, graph)
                steps = self._polled()
                reply["rows"] = [] if steps is None else as_objects(steps.newest(index, _NEWEST_ROWS))
            return reply

    # --- what has changed ------------------------------------------------------------------------

    def state(self) -> str:
        """running, finished, diverged, stopped, failed, or silent (see ARCHITECTURE.md)."""
        with self._lock:
            summary = self._object("summary")
            if summary is not None:
                return "diverged" if summary.get("diverged") is True else "finished"
            written = _writer(self.path / LOCK)
            since = time.time() - self.updated()
            if written is not None and (since < _ALIVE or written == "here"):
                return "running"
            if written == "elsewhere":
                return "running" if since < _SILENT else "silent"
            self._events.poll()
            last = self._events.rows[-1].get("event") if self._events.rows else None
            return "failed" if last == "failed" else "stopped"

    def updated(self) -> float:
        """When anything was written last, in Unix time."""
        times = [mark[2] for mark in self._marks_of_files().values() if mark is not None]
        return max(times, default=0) / 1e9

    def marks(self) -> dict[str, object]:
        """By part of the run, something that is another value once there is something new to show."""
        files = self._marks_of_files()
        steps: list[tuple[str, int]] = []
        with contextlib.suppress(OSError), os.scandir(self.path / FACTS) as entries:
            for entry in entries:
                if entry.name.startswith("steps-"):
                    with contextlib.suppress(OSError):
                        steps.append((entry.name, entry.stat(follow_symlinks=False).st_size))
        return {
            "now": (files["clients.bin"], files["edges.bin"]),
            "curves": files["metrics.jsonl"],
            "events": files["events.jsonl"],
            "steps": hash(tuple(sorted(steps))),
            "run": (*(files[f"{name}.json"] for name in _OBJECTS), files["layout.json"], self.state()),
        }

    def forget(self) -> None:
        """Free what was read of the steps; the next reply reads it again."""
        with self._lock:
            self._steps = self._stream = self._client_curves = None

    @property
    def loaded(self) -> bool:
        """Whether rows of steps are held in memory."""
        return self._steps is not None and self._steps.count > 0

    # --- parts -----------------------------------------------------------------------------------

    def _object(self, name: str) -> dict[str, Any] | None:
        return self._objects[name].read()

    def _layout(self) -> Layout | None:
        if self._steps is None:
            self._steps = Steps(self.path)
        layout = self._steps.layout
        if layout is not None and self._stream is not None and self._stream.clients != layout.clients:
            self._stream = self._client_curves = None
        return layout

    def _polled(self) -> Steps | None:
        if self._steps is not None:
            self._steps.poll()
        return self._steps

    def _tables(self, layout: Layout) -> tuple[Table, Table]:
        """Records of clients and edges, as many as the layout has, whatever is there to be read."""
        assert self._steps is not None
        return self._steps.tables(layout)

    def _time(self, clients: Table) -> float:
        """The newest time of the run's clock that anybody has told."""
        times = clients["time"][np.isfinite(clients["time"]) & (np.abs(clients["time"]) < 1e12)]
        return max(float(times.max(initial=0.0)), 0.0 if self._steps is None else self._steps.end)

    def _state_words(self, codes: list[int]) -> list[str]:
        """Who was killed could not write that it has stopped: where nobody runs, no client does.

        But the neighbours of a node go on without it: of them this is what it knew last.
        """
        words: dict[int, str] = {state: state.name.lower() for state in ClientState}
        found = [words.get(code, words[ClientState.STARTING]) for code in codes]
        if self.state() in ("running", "silent"):
            return found
        layout = self._layout()
        own = len(found) if layout is None or not layout.names else 1
        return ["stopped" if word in _GOING_ON else word for word in found[:own]] + found[own:]

    def _curves_of_clients(self, columns: dict[str, list[float | None]]) -> Reply | None:
        layout, steps = self._layout(), self._polled()
        if layout is None or steps is None or steps.count == 0:
            return None
        if self._client_curves is None:
            self._client_curves = ClientCurves(steps, layout.clients)
        return self._client_curves.columns(columns)

    def _drawn(self) -> tuple[Layout | None, Reply | None]:
        """The graph, computed once: placing clients takes a moment, in which other replies need not wait."""
        with self._drawing:
            with self._lock:
                layout, files = self._layout(), self.about_files()
            if layout is None:
                return None, None
            key = (layout.clients, layout.indptr, layout.indices, id(files["config"]), id(files["partition"]))
            if self._graph is None or self._graph[0] != key:
                self._graph = (key, graph_of(layout, files["config"], files["partition"]))
            return layout, self._graph[1]

    def _neighbours(self, layout: Layout, edges: Table, index: int, graph: Reply | None) -> list[Reply]:
        begin, end = layout.indptr[index], layout.indptr[index + 1]
        weights = weights_of_node(layout, self._object("status"))
        if weights is None and graph is not None:
            weights = graph["weights"]
        return [
            {
                "client": layout.indices[k],
                "weight": weights[k] if weights is not None and k < len(weights) else None,
                "version": None if edges["version"][k] == NO_VERSION else int(edges["version"][k]),
                "since": number(edges["since"][k].item()),
            }
            for k in range(begin, min(end, len(edges)))
        ]

    def _marks(self, begin: float, end: float, first: int, last: int) -> list[Reply]:
        """Events in view, but those that happen to every run; of many the newest."""
        self._events.poll()
        found: list[Reply] = []
        for row in reversed(self._events.rows):
            at, client, event = number(row.get("time")), row.get("client"), row.get("event")
            if at is None or not begin <= at <= end or event in _UNMARKED or not isinstance(event, str):
                continue
            if not isinstance(client, int) or isinstance(client, bool):
                client = None
            if client is None or first <= client <= last:
                found.append({"time": at, "client": client, "event": event})
            if len(found) == MOST_EVENTS:
                break
        return found[::-1]

    def _marks_of_files(self) -> dict[str, Mark | None]:
        names = [*(f"{name}.json" for name in _OBJECTS), "metrics.jsonl", "events.jsonl"]
        marks = {name: mark_of(self.path / name) for name in names}
        for name in ("layout.json", "clients.bin", "edges.bin"):
            marks[name] = mark_of(self.path / FACTS / name)
        return marks


def _writer(lock: Path) -> str | None:
    """Where the process is that holds a folder: here, elsewhere, or nowhere any more (None)."""
    text = beginning_of(lock, 500)
    if text is None:
        return None
    words = text.decode(errors="replace").split()
    if len(words) != 4 or not words[1].isascii() or not words[1].isdigit():
        return "elsewhere"  # being written just now
    if words[3] != platform.node():
        return "elsewhere"
    try:
        os.kill(int(words[1][:9]), 0)
    except PermissionError:
        return "here"
    except OSError:
        return None
    return "here"
