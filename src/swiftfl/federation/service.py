"""What a node shows of itself while it runs, and what it can be asked: files in its folder, and nothing else.

`status.json` is written twice a second; `consensus.request`, when somebody makes it, is taken away and begins
a consensus; `consensus.safetensors` is the model of the last one, wherever it was begun. Whoever may write
the folder may ask: no port is opened for it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors.numpy import save_file

from swiftfl.engines.live.journal import split
from swiftfl.errors import UserError
from swiftfl.federation.consensus import ConsensusModel
from swiftfl.federation.node import Node
from swiftfl.federation.record import NodeRecord
from swiftfl.files import reported, write_atomically, write_json
from swiftfl.record.facts import ClientState
from swiftfl.vector import Vector

STATUS, REQUEST, CONSENSUS = "status.json", "consensus.request", "consensus.safetensors"
_EVERY = 0.5
_MEASURE_EVERY = 5.0  # seconds at least between two measurements of the node's own model,
_MEASURE_SHARE = 100  # which take at most one part in so many of its time,
_MEASURE_GROWTH = 0.01  # and come less often the longer it runs: a week has a thousand of them
_SILENT = 5.0  # seconds after which a status is not of a node that runs


Evaluate = Callable[[Vector], dict[str, float | None]]


class NodeService:
    """A thread beside the node. `evaluate` gives the metrics of a model on the node's own held-out data; the
    thread that trains calls it, between two steps, because a module can do only one thing at a time.

    A training loop of one's own evaluates for itself: without `evaluate` nothing is measured here.
    """

    def __init__(self, node: Node, record: NodeRecord, evaluate: Evaluate | None = None) -> None:
        self._node, self._record, self._evaluate = node, record, evaluate
        self.phase = "running"
        self._written = 0
        self._consensus: dict[str, Any] | None = None
        self._to_measure: ConsensusModel | None = None
        self._measured = 0  # the epoch of the consensus that was measured last
        self._due = 0.0 if evaluate is not None else math.inf  # when the node's own model is measured next
        self._closing = threading.Event()
        self._warned = False
        (node.plan.folder / REQUEST).unlink(missing_ok=True)
        node.control.between_steps = self.between_steps
        self.look()
        self._thread = threading.Thread(target=self._run, name="swiftfl-service", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closing.wait(_EVERY):
            self.look()

    def look(self) -> None:
        """Take requests, and write what has changed."""
        folder, node = self._node.plan.folder, self._node
        self._record.write(node, ClientState.FINISHED if self.phase == "finished" else None)
        try:
            if (folder / REQUEST).exists():
                (folder / REQUEST).unlink()
                node.say("was asked for a consensus")
                node.membership.want_consensus()
            newest = node.membership.consensus.newest
            if newest is not None and newest.epoch != self._written:
                self._written = newest.epoch
                self._write(newest)
            write_json(folder / STATUS, self.status())
        except (OSError, UserError) as error:
            if not self._warned:
                self._warned = True
                node.say(f"cannot write its status: {error}; training goes on")

    def _write(self, model: ConsensusModel) -> None:
        path = self._node.plan.folder / CONSENSUS
        about = {"epoch": str(model.epoch), "nodes": str(model.nodes), "node": self._node.plan.name}
        write_atomically(path, lambda file: save_file({"consensus": model.x}, file, metadata=about))
        self._consensus = {"epoch": model.epoch, "nodes": model.nodes, "evaluation": None, "own": None}
        if self._evaluate is None:
            self._record.note("consensus", nodes=model.nodes)
            self._node.say(f"consensus of {model.nodes} nodes: {path}")
        self._to_measure = model

    def between_steps(self, x: Vector) -> None:
        """Measure what is due; called by the thread that trains, or that would if there were steps left."""
        if self._evaluate is None:
            return
        model = self._to_measure
        if model is not None and model.epoch != self._measured:
            self._measured = model.epoch
            own, mean = self._evaluate(x), self._evaluate(model.x)
            self._consensus = {"epoch": model.epoch, "nodes": model.nodes, "evaluation": mean, "own": own}
            self._record.note("consensus", nodes=model.nodes, evaluation=mean, own=own)
            told = f"consensus of {model.nodes} nodes: {shown(mean)} here; its own model: {shown(own)}"
            self._node.say(told)
        if time.monotonic() >= self._due:
            self.measure(x)

    def measure(self, x: Vector) -> dict[str, float | None]:
        """The metrics of the node's own model, which go to its curve."""
        if self._evaluate is None:
            return {}
        began = time.monotonic()
        found = self._evaluate(x)
        c, steps = self._node.client.state.c, self._node.setup.batches[0].steps_per_epoch
        self._record.measured(c, (c - 1) / steps, found)
        now = time.monotonic()
        pause = max(_MEASURE_EVERY, _MEASURE_SHARE * (now - began), _MEASURE_GROWTH * self._record.now)
        self._due = now + pause
        return found

    def status(self) -> dict[str, Any]:
        """How the node stands, as plain JSON values."""
        node, control = self._node, self._node.control
        tally, connection, selected = control.tally, node.connection, node.membership.selected
        here, last = connection.view(), control.last_step
        weights = {} if selected is None else selected[1].w.of
        neighbours = {}
        models = node.client.server.ages.newest(connection.names)
        for k, name in connection.names.items():
            newest = node.client.server.gate.newest.get(k)
            neighbours[name] = {
                "here": k in here,
                "weight": weights.get(k, 0.0) if k in here else 0.0,
                "steps": None if newest is None else split(newest)[1],
                "age_seconds": time.perf_counter() - models[k][1] if k in models else None,
                "refused": connection.wire.refusals.of(name),
            }
        return {
            "name": node.plan.name,
            "federation": node.plan.federation,
            "process": os.getpid(),
            "time": time.time(),
            "started": node.started,
            "from": node.how_started,
            "phase": self.phase,
            "step": control.c,
            "last_step": None if math.isinf(node.last) else int(node.last),
            "steps_per_second": control.rate(),
            "loss": None if math.isnan(tally.loss) else tally.loss,
            "compute_seconds": tally.compute,
            "communication_seconds": tally.communication,
            "longest_gap_seconds": control.longest_gap,
            "seconds_since_step": None if last is None else time.monotonic() - last,
            "nodes": 1 if selected is None else selected[0].n,
            "epoch": 0 if selected is None else selected[0].epoch,
            "influence": node.plan.influence if selected is None else selected[0].p,
            "scale": 1.0 if selected is None else selected[1].scale,
            "own_weight": 1.0 if selected is None else selected[1].w.own,
            "neighbours": neighbours,
            "refused": dict(tally.refused),
            "refusals": connection.wire.refusals.by_sender(),
            "discarded": tally.discarded,
            "renewals": tally.renewals,
            "saves_failed": tally.saves_failed,
            "consensus": self._consensus,
            "measures": self._evaluate is not None,
        }

    def close(self, phase: str, values: Mapping[str, float | None] | None = None, reason: str = "") -> None:
        """The last word, with what was measured last."""
        self._closing.set()
        self._thread.join(5.0)
        self.look()
        ended = "finished" if self.phase == "finished" else phase
        self.phase = phase
        self._record.close(self._node, ended, values or {}, reason)
        with contextlib.suppress(OSError, UserError):
            write_json(self._node.plan.folder / STATUS, self.status())


def shown(values: Mapping[str, float | None]) -> str:
    """Metrics in words.

    >>> shown({"loss": 0.25, "accuracy": 0.939, "f1": None})
    'loss 0.25, accuracy 0.939'
    """
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items() if value is not None)


# --- the other side: commands on the same machine --------------------------------------------------


def read_status(folder: Path) -> dict[str, Any]:
    """What a node said last; a `UserError` if it has never run. `silent` says that it does not run now."""
    path = folder / STATUS
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found["silent"] = found["phase"] in ("stopped", "left") or time.time() - found["time"] > _SILENT
    except FileNotFoundError:
        raise UserError(f"no node has run in {folder} yet: swiftfl node {folder}/node.yaml") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"cannot read {path}: {error}") from None
    return found


def runs(folder: Path) -> bool:
    """Whether the node of this folder runs now."""
    try:
        return not read_status(folder)["silent"]
    except UserError:
        return False


def ask_for_consensus(folder: Path, seconds: float) -> dict[str, Any]:
    """Ask the node that runs here to begin one; what came of it."""
    before = read_status(folder)
    if before["silent"]:
        raise UserError(f"node {before['name']} does not run: start it with swiftfl node {folder}/node.yaml")
    epoch = (before["consensus"] or {}).get("epoch", 0)
    with reported(folder / REQUEST):
        (folder / REQUEST).touch()
    end = time.monotonic() + seconds
    found: dict[str, Any] | None = None
    while time.monotonic() < end:
        now = read_status(folder)
        newest: dict[str, Any] = now["consensus"] or {}
        found = newest if newest.get("epoch", epoch) != epoch else None
        if found is not None and (found["evaluation"] is not None or not now["measures"]):
            return found
        if now["silent"]:
            raise UserError(f"node {before['name']} has ended meanwhile: no consensus came about")
        time.sleep(0.1)
    if found is not None:  # between two long steps nobody has measured it yet
        return found
    raise UserError(
        f"no consensus came about in {seconds:g} s: ask again (somebody may have come or gone meanwhile), or "
        "give it more --seconds"
    )
