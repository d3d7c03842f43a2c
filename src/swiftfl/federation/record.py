"""What a node writes down while it runs, so that it can be watched: the files of a run folder, in its own.

A node's folder has `config.json`, `events.jsonl`, `metrics.jsonl`, `facts/` and, at the end, `summary.json`
like that of any run, from this node's point of view: client 0 is the node itself, the others are its
neighbours, of which it knows who is there and which models have come, and nothing else. All of them have
names. A node that is started again goes on with the same files.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from swiftfl.engines.live.facts import FactsPlan, StepFacts
from swiftfl.engines.live.journal import split
from swiftfl.errors import UserError
from swiftfl.federation.node import Node
from swiftfl.federation.plan import NodePlan
from swiftfl.record import RunFolder
from swiftfl.record.facts import (
    FACTS,
    ClientState,
    FactsReader,
    FactsWriter,
    Layout,
    Table,
    no_clients,
    no_edges,
)
from swiftfl.record.folder import versions
from swiftfl.transports.wire import Refusal

ENGINE = "node"
"""What stands for the engine in config.json."""
_FACTS_BYTES = 64_000_000
_RATE_OVER = 8  # writes, over which the steps of neighbours are counted
_REFUSALS_EVERY = 60.0  # seconds between two events, and lines, about refused messages of the same kind
_END_STATES = {"finished": ClientState.FINISHED, "failed": ClientState.LOST}


class NodeRecord:
    """Written by the thread of `NodeService`, but for `steps`, which are the training loop's.

    What the disk does not take is missing, the user is told once, and training goes on.
    """

    def __init__(
        self, plan: NodePlan, config: Mapping[str, object], last: float, say: Callable[[str], None]
    ) -> None:
        """Takes the folder: a second process that would be the same node is refused."""
        self._plan, self._say, self._failed = plan, say, False
        plan.folder.mkdir(parents=True, exist_ok=True)
        self._folder = RunFolder(plan.folder)
        self._held = contextlib.ExitStack()
        self._held.enter_context(self._folder.locked())
        before = FactsWriter.read_layout(plan.folder)
        known = () if before is None else before.names[1:]
        here = plan.names()
        # Who was a neighbour before keeps its place: what is written of it stays its own.
        self.names = (plan.name, *known, *(name for name in here.values() if name not in known))
        place = {name: at for at, name in enumerate(self.names)}
        self._slots = {k: place[name] for k, name in here.items()}
        began = time.time() if before is None else before.began
        self._origin = time.perf_counter() - (time.time() - began)
        near = tuple(sorted(self._slots.values()))
        self.layout = Layout(
            clients=len(self.names),
            engine=ENGINE,
            clock="wall",
            began=began,
            total=0 if math.isinf(last) else int(last),
            indptr=(
                0,
                *(len(near) + sum(k in near for k in range(1, n + 1)) for n in range(len(self.names))),
            ),
            indices=(*near, *(0 for _ in near)),
            session=1 if before is None else before.session + 1,
            names=self.names,
        )
        self._near = near
        self._seen: dict[int, int] = {}
        self._gone: set[int] = set()
        self._epoch = 0
        self._refused: dict[tuple[str, str], tuple[int, float]] = {}
        self._past: deque[tuple[float, dict[int, int]]] = deque(maxlen=_RATE_OVER)
        self._writer: FactsWriter | None = None
        self.steps = StepFacts(FactsPlan(plan.folder / FACTS, _FACTS_BYTES, [()]), 0, say)
        self._attempt(lambda: self._begin(config, before is not None))

    @property
    def now(self) -> float:
        """Seconds since the node was started for the first time."""
        return time.perf_counter() - self._origin

    def _begin(self, config: Mapping[str, object], again: bool) -> None:
        folder = self._folder
        before = FactsReader(folder.path).clients()
        crashed = self._end_of_a_crash(before) if again else None
        (folder.path / "summary.json").unlink(missing_ok=True)
        topology = {"clients": len(self.names), "edges": [[0, k] for k in self._near]}
        about = {
            "name": self._plan.name,
            "id": self._plan.federation,
            "neighbours": sorted(self._plan.neighbours),
        }
        folder.write_json(
            "config.json",
            {**config, "engine": {"name": ENGINE}, "topology": topology, "federation": about},
        )
        folder.write_json("versions.json", versions())
        self._writer = FactsWriter(folder.path, self.layout, _FACTS_BYTES)
        self._writer.edges.write(no_edges(self.layout.edges))
        self._writer.clients.write(self._first_records(before))
        self.steps.begin(self._origin)
        if crashed is not None:
            self.note("lost", at=crashed, client=0, reason="it ended without a word")
            self.note("join", client=0)
        self.note("resume" if again else "start")

    def _first_records(self, before: Table) -> Table:
        """Of a node that starts, and may have run before; who is there it does not know yet."""
        records = no_clients(len(self.names))
        records[: len(before)] = before
        records["state"] = ClientState.STARTING
        records["rate"] = 0.0
        records["time"] = self.now
        return records

    def _end_of_a_crash(self, clients: Table) -> float | None:
        """When the process before this one was there last, if it did not take its leave."""
        rows = self._folder.read_rows("events.jsonl")
        if not rows or rows[-1].get("event") in ("stop", "end", "failed"):
            return None
        return float(clients["time"][0]) if len(clients) else None

    # --- while it runs ---------------------------------------------------------------------------

    def note(self, event: str, at: float | None = None, **more: object) -> None:
        """Something has happened."""
        row = {"time": self.now if at is None else at, "event": event, **more}
        self._attempt(lambda: self._folder.append("events.jsonl", row))

    def measured(self, c: int, epoch: float, values: Mapping[str, float | None]) -> None:
        """The node's own model on its held-out data."""
        own = {name: value for name, value in values.items() if name not in ("loss", "accuracy")}
        row: dict[str, object] = {"time": self.now, "iteration": c - 1, "epoch": epoch}
        row |= {"loss": values["loss"], "accuracy": values.get("accuracy"), "metrics": own}
        self._attempt(lambda: self._folder.append("metrics.jsonl", row))

    def write(self, node: Node, state: ClientState | None = None) -> None:
        """How it stands, and what has happened since; `state` is the node's own where it does not run."""
        self._notice(node)
        self._attempt(lambda: self._write(node, state))

    def _write(self, node: Node, state: ClientState | None) -> None:
        if self._writer is None:
            return
        newest = {k: split(v)[1] for k in self._slots if (v := node.client.server.gate.newest.get(k))}
        self._past.append((self.now, newest))
        records = no_clients(len(self.names))
        records["time"] = self.now
        records["state"][1:] = ClientState.STOPPED  # who is no neighbour any more
        self._own(records, node, state)
        for k, slot in self._slots.items():
            here = k in self._seen
            there = ClientState.BACK if slot in self._gone else ClientState.RUNNING
            absent = ClientState.LOST if slot in self._gone else ClientState.STARTING
            records["state"][slot] = there if here else absent
            records["c"][slot] = newest.get(k, 0)
            records["rate"][slot] = self._rate(k) if here else 0.0
            records["refused"][slot] = node.connection.wire.refusals.of(self._plan.names()[k])
        self._writer.clients.write(records)
        edges = no_edges(len(self._near))
        for k, (c, since) in node.client.server.ages.newest(self._slots).items():
            edges[self._near.index(self._slots[k])] = (c, since - self._origin)
        self._writer.edges.write(edges)

    def _own(self, records: Table, node: Node, state: ClientState | None) -> None:
        tally, control = node.control.tally, node.control
        own = records[0:1]
        own["state"] = ClientState.RUNNING if control.c else ClientState.STARTING
        if state is not None:
            own["state"] = state
        own["c"], own["rate"] = control.c, control.rate() if control.c and state is None else 0.0
        for name in ("steps", "compute", "communication", "waiting", "discarded", "renewals", "loss"):
            own[name] = getattr(tally, name)
        own["refused"] = sum(tally.refused.values())
        own["age"] = tally.age_sum / tally.age_count if tally.age_count else np.nan

    def _rate(self, k: int) -> float:
        """Steps per second of a neighbour, by the models that have come lately."""
        then, first = self._past[0]
        now, last = self._past[-1]
        return max(0, last[k] - first[k]) / (now - then) if now > then and k in first and k in last else 0.0

    def _notice(self, node: Node) -> None:
        """What has changed since the last look becomes an event."""
        c, view = node.control.c, node.connection.view()
        for k, slot in self._slots.items():
            before, after = self._seen.get(k), view.get(k)
            if before is not None and after != before:
                self._gone.add(slot)
                self.note("lost", client=slot, iteration=c, reason="it cannot be reached")
            if after is not None and after != before:
                self.note("join", client=slot, iteration=c)
        self._seen = view
        selected = node.membership.selected
        if selected is not None and selected[0].epoch != self._epoch:
            self._epoch = selected[0].epoch
            self.note("renew", iteration=c, nodes=selected[0].n)
        for sender, reasons in node.connection.wire.refusals.by_sender().items():
            for reason, count in reasons.items():
                self._notice_refused(sender, reason, count, c)

    def _notice_refused(self, sender: str, reason: str, count: int, c: int) -> None:
        told, at = self._refused.get((sender, reason), (0, -math.inf))
        if count > told and self.now - at > _REFUSALS_EVERY:
            self._refused[sender, reason] = count, self.now
            who: dict[str, Any] = {"client": self.names.index(sender)} if sender in self.names else {}
            self.note("refused", **who, iteration=c, reason=reason, messages=count - told)
            many = "a message" if count - told == 1 else f"{count - told} messages"
            self._say(f"refused {many} of {sender}: {Refusal[reason].value} ({reason})")

    # --- the end ---------------------------------------------------------------------------------

    def close(self, node: Node, phase: str, values: Mapping[str, float | None], reason: str = "") -> None:
        """The last word: finished, stopped (to go on another day) or failed; gives the folder back."""
        self.write(node, _END_STATES.get(phase, ClientState.STOPPED))
        if phase == "finished":
            self.note("end")
            summary = {
                "clients": len(self.names),
                "iterations": node.control.c - 1,
                "wall_seconds": self.now,
                **values,
            }
            self._attempt(lambda: self._folder.write_json("summary.json", summary))
        elif phase == "failed":
            self.note("failed", reason=reason)
        else:
            self.note("stop")
        self.steps.close()
        if self._writer is not None:
            self._attempt(self._writer.close)
        self._held.close()

    def give_up(self, reason: str) -> None:
        """The node could not be made."""
        self.note("failed", reason=reason)
        self._held.close()

    def _attempt(self, write: Callable[[], None]) -> None:
        try:
            write()
        except (UserError, OSError) as error:
            if not self._failed:
                self._say(f"records no more of what happens: {error}; training goes on")
            self._failed = True
