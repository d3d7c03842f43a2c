"""What `swiftfl watch` shows of a run folder: its views at one moment, and the rate from look to look."""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swiftfl.views import RunView
from swiftfl.views.stream import decoded

_STEPS_IN_VIEW = 40
_RATE_SECONDS = 10.0
_NOT_WRITTEN = 0.6  # seconds: live clients write their steps twice a second
_LEAST_VIEW = 3.0  # seconds of a live run
_EVENTS = 200  # that are looked at
_GOING_ON = ("starting", "running", "back")
COMINGS_AND_GOINGS = ("lost", "restart", "join", "leave")
"""Events of live runs: clients are lost, and come."""
_AT_ONCE = 8
_UNTOLD = ("start", "checkpoint", "end", "ccs", "notice", "sleep")
States = NDArray[np.uint8]


@dataclass(frozen=True)
class Neighbour:
    """What a node knows of one of its neighbours."""

    name: str
    state: str
    step: int | None
    """Behind its newest model that is here, which is `age` seconds old."""
    age: float | None
    rate: float | None
    weight: float | None
    refused: int


@dataclass(frozen=True)
class Seen:
    """A run at one moment, as plain values; what is not known is None."""

    name: str
    title: str
    state: str
    done: int
    total: int | None
    rate: float | None
    """Client steps per real second."""
    left: float | None
    """Real seconds until the end, at this rate."""
    time: float | None
    clock: str
    losses: list[float] = field(default_factory=list)
    accuracy: float | None = None
    clients: dict[str, int] = field(default_factory=dict)
    """How many are in each state."""
    lost: list[int] = field(default_factory=list)
    shares: dict[str, float] = field(default_factory=dict)
    """Of the clients' time: compute, communication, waiting."""
    slowest: list[tuple[int, float]] = field(default_factory=list)
    """Clients, and how many times as long as the median client's their steps take, without waiting."""
    stalest: list[tuple[int, float]] = field(default_factory=list)
    """Clients, and the mean age of the models that they averaged, in steps."""
    refused: int = 0
    names: list[str] = field(default_factory=list)
    """Of clients that have names: the nodes of a federation. The first is the one whose folder it is."""
    neighbours: list[Neighbour] = field(default_factory=list)
    """Of a node."""
    events: list[str] = field(default_factory=list)
    """What has happened, the newest last."""


@dataclass(frozen=True)
class Lanes:
    """The stream of a stretch of time: per client, or group of clients, the state in each bin."""

    begin: float
    end: float
    labels: list[str]
    states: States
    """(lanes, bins): 0 nothing, 1 compute, 2 communication, 3 waiting."""


class Watcher:
    """Looks at a run folder again and again."""

    def __init__(self, run: RunView) -> None:
        self.run, self.name = run, printable(run.name)
        self._past: deque[tuple[float, int]] = deque()
        self._told = 0

    def look(self, counted: tuple[int, int] | None = None) -> Seen:
        """The run now; `counted` are its steps so far and in all, from the run itself while it goes on."""
        about, now, state = self.run.card(), self.run.now(), self.run.state()
        columns = self.run.measurements()
        layout = self.run.layout()
        done = _done(now, columns)
        total = None if layout is None else int(layout["total"])
        if counted is not None:
            (done, total), state = counted, "running"  # whatever became of its files
        rate = self._rate(done, state, layout, now)
        names = self._names(layout)
        left = (total - done) / rate if rate and total and total > done and state == "running" else None
        return Seen(
            name=self.name,
            title=_title(about, names),
            state=state,
            done=min(done, total) if total else done,
            total=total,
            rate=rate,
            left=left,
            time=None if now is None else now["time"],
            clock="" if layout is None else layout["clock"],
            losses=[loss for loss in columns.get("loss", []) if loss is not None],
            accuracy=next((a for a in reversed(columns.get("accuracy", [])) if a is not None), None),
            names=names,
            neighbours=_neighbours(layout, now) if layout and names and now is not None else [],
            events=[text for row in self._newest_events() if (text := told(row, names)) is not None],
            **({} if now is None else _of_clients(now["columns"])),
        )

    def _newest_events(self) -> list[dict[str, Any]]:
        total = self.run.events(0)["total"]
        events: list[dict[str, Any]] = self.run.events(max(0, total - _EVENTS))["events"]
        return events

    def new_events(self, kinds: Collection[str] | None = None) -> list[str]:
        """What has happened since the last call, of these kinds or all but what happens in every run.

        Of many only the first few are told.
        """
        texts: list[str] = []
        names = self._names(self.run.layout())
        more = True
        while more:  # a reply has only so many
            reply = self.run.events(self._told)
            self._told, more = reply["next"], 0 < len(reply["events"]) < reply["total"] - reply["first"]
            rows = [row for row in reply["events"] if kinds is None or row.get("event") in kinds]
            texts += [text for row in rows if (text := told(row, names)) is not None]
        if len(texts) > _AT_ONCE:
            texts[_AT_ONCE:] = [f"and {len(texts) - _AT_ONCE:,} more events"]
        return texts

    def lanes(self, bins: int, most: int, whole: bool) -> Lanes | None:
        """Who did what lately, or in the whole run, in at most so many lanes; None where nothing is known."""
        now = self.run.now()
        if now is None or bins < 1 or most < 1:
            return None
        begin, end = 0.0, now["time"]
        rates = sorted(rate for rate in now["columns"]["rate"] if rate)
        if rates and end and not whole:
            lately, live = _STEPS_IN_VIEW / rates[len(rates) // 2], self.clock() == "wall"
            end -= min(_NOT_WRITTEN, end / 2) if live else 0.0
            begin = max(0.0, end - max(lately, _LEAST_VIEW if live else 0.0))
        if not end or end <= begin:
            return None
        reply = self.run.stream(begin, end, bins)
        if reply is None:
            return None
        clients, states = reply["last"] - reply["first"] + 1, decoded(reply)[0]
        if names := self._names(self.run.layout()):  # of neighbours nobody here knows what they do when
            return Lanes(reply["from"], reply["to"], names[:1], states[:1])
        return _grouped(Lanes(reply["from"], reply["to"], [], states), clients, most)

    @staticmethod
    def _names(layout: dict[str, Any] | None) -> list[str]:
        return [] if layout is None else [printable(name) for name in layout["names"]]

    def clock(self) -> str | None:
        layout = self.run.layout()
        return None if layout is None else str(layout["clock"])

    def _rate(
        self, done: int, state: str, layout: dict[str, Any] | None, now: dict[str, Any] | None
    ) -> float | None:
        """By what was seen here lately; at the first look by the run's own clock, if that is a real one."""
        moment = time.monotonic()
        self._past.append((moment, done))
        while moment - self._past[0][0] > _RATE_SECONDS and len(self._past) > 2:
            self._past.popleft()
        if state != "running":
            return None
        before, then = self._past[0]
        if moment - before >= 0.4:
            return max(0.0, (done - then) / (moment - before))
        if layout is not None and layout["clock"] == "wall" and now is not None and now["time"]:
            return float(done / now["time"])
        return None


def printable(text: str) -> str:
    """What a file says, without what would command the terminal that it is shown on.

    >>> printable("run \\x1b[2J")
    'run ?[2J'
    """
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def told(row: dict[str, Any], names: Sequence[str] = ()) -> str | None:
    """An event as it is told, clients by their names if they have any; None for what happens in every run."""
    event, client, edge = str(row.get("event")), row.get("client"), row.get("edge")
    if event in _UNTOLD:
        return None
    at = row.get("time")
    when = f"{at:.4g} s  " if isinstance(at, int | float) else ""
    named = isinstance(client, int) and 0 <= client < len(names)
    who = "" if client is None else f"{names[client]} " if named else f"client {client} "
    nodes = f"{row['nodes']} nodes" if "nodes" in row else ""
    if event == "renew" and row.get("nodes") == 1:
        return f"{when}alone: no neighbour is here"
    words = {
        "lost": f"{who}lost: {row.get('reason', '')}",
        "crash": f"{who}lost",
        "return": f"{who}back",
        "join": f"{who}takes part",
        "leave": f"{who}has left",
        "restart": f"{who}is started again",
        "renew": "weights renewed"
        + (f" among {row['clients']} clients" if "clients" in row else nodes and f" among {nodes}"),
        "consensus": f"consensus of {nodes}",
        "refused": f"{who}sent {row.get('messages', '')} messages that were refused: {row.get('reason', '')}",
        "warning": str(row.get("text", "")),
        "edge_down": f"edge {edge} down",
        "edge_up": f"edge {edge} up",
        "diverged": f"diverged: {row.get('reason', '')}",
        "failed": f"failed: {row.get('reason', '')}",
        "resume": "resumed",
        "stop": "stopped",
    }
    return printable(when + " ".join(words.get(event, f"{who}{event}").split()))


def _done(now: dict[str, Any] | None, columns: dict[str, list[Any]]) -> int:
    if now is not None:
        return int(now["done"])
    iterations = [count for count in columns.get("iteration", []) if count is not None]
    return int(iterations[-1]) if iterations else 0


def _title(about: dict[str, Any], names: Sequence[str]) -> str:
    algorithm = about["algorithm"] or "?"
    if names:
        count = len(names) - 1
        return printable(f"{algorithm}, node with {count} neighbour{'' if count == 1 else 's'}")
    clients = f", {about['clients']:,} clients" if about["clients"] else ""
    engine = f", {about['engine']}" if about["engine"] else ""
    return printable(f"{algorithm}{clients}{engine}")


def _neighbours(layout: dict[str, Any], now: dict[str, Any]) -> list[Neighbour]:
    """What a node knows of the others; the first edges are its own."""
    columns, edges, weights = now["columns"], now["edges"], now["weights"] or []
    found = []
    for place, i in enumerate(layout["near"]):
        since = edges["since"][place] if place < len(edges["since"]) else None
        step = columns["c"][i] or None
        found.append(
            Neighbour(
                name=printable(layout["names"][i]),
                state=columns["state"][i],
                step=step,
                age=None if since is None or step is None else max(0.0, now["time"] - since),
                rate=columns["rate"][i] or None,
                weight=weights[place] if place < len(weights) else None,
                refused=columns["refused"][i],
            )
        )
    return found


def _of_clients(columns: dict[str, list[Any]]) -> dict[str, Any]:
    states = columns["state"]
    going_on = [i for i, state in enumerate(states) if state in _GOING_ON]
    spent = {name: sum(columns[name]) for name in ("compute", "communication", "waiting")}
    total = sum(spent.values())
    return {
        "clients": dict(Counter(states)),
        "lost": [i for i, state in enumerate(states) if state == "lost"],
        "shares": {name: seconds / total for name, seconds in spent.items()} if total else {},
        "slowest": _slowest(columns, going_on),
        "stalest": _stalest(columns),
        "refused": sum(columns["refused"]),
    }


def _slowest(columns: dict[str, list[Any]], going_on: list[int]) -> list[tuple[int, float]]:
    """By the time that a step of theirs has taken, on average, without waiting for others."""
    each = {}
    for i in going_on or range(len(columns["steps"])):
        spent = columns["compute"][i] + columns["communication"][i]
        if columns["steps"][i]:
            each[i] = spent / columns["steps"][i]
    if len(each) < 2:
        return []
    middle = sorted(each.values())[len(each) // 2]
    slow = sorted(each.items(), key=lambda item: -item[1])[:3]
    return [(i, seconds / middle) for i, seconds in slow if middle > 0 and seconds / middle >= 1.05]


def _stalest(columns: dict[str, list[Any]]) -> list[tuple[int, float]]:
    ages = {i: age for i, age in enumerate(columns["age"]) if age is not None and math.isfinite(age)}
    return sorted(ages.items(), key=lambda item: -item[1])[:3]


def _grouped(lanes: Lanes, clients: int, most: int) -> Lanes:
    """One lane per client, or per group of about the same size; a group shows what most of it does."""
    rows = len(lanes.states)
    count = min(rows, most)
    edges = [round(k * rows / count) for k in range(count + 1)]
    of_client = [round(edge * clients / rows) for edge in edges]
    labels = [
        str(first) if last - first <= 1 else f"{first}-{last - 1}" for first, last in pairwise(of_client)
    ]
    merged = [_most_frequent(lanes.states[a:b]) for a, b in pairwise(edges)]
    return Lanes(lanes.begin, lanes.end, labels, np.array(merged, np.uint8).reshape(count, -1))


def _most_frequent(states: States) -> States:
    counts = np.stack([(states == state).sum(axis=0) for state in range(4)])
    found: States = counts.argmax(axis=0).astype(np.uint8)
    return found
