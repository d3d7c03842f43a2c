"""What a node shows of itself while it runs, and what it can be asked: files in its folder, and nothing else.

`status.json` is written twice a second; `consensus.request`, when somebody makes it, is taken away and begins
a consensus; `consensus.safetensors` is the model of the last one, wherever it was begun. Whoever may write
the folder may ask: no port is opened for it.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.numpy import save_file

from swiftfl.engines.live.journal import split
from swiftfl.errors import UserError
from swiftfl.federation.consensus import ConsensusModel
from swiftfl.federation.node import Node
from swiftfl.files import write_atomically, write_json
from swiftfl.vector import Vector

STATUS, REQUEST, CONSENSUS = "status.json", "consensus.request", "consensus.safetensors"
_EVERY = 0.5
_SILENT = 5.0  # seconds after which a status is not of a node that runs


class NodeService:
    """A thread beside the node. `evaluate` gives the metrics of a model on the node's own held-out data."""

    def __init__(self, node: Node, evaluate: Callable[[Vector], dict[str, float | None]]) -> None:
        self._node, self._evaluate = node, evaluate
        self.phase = "running"
        self._written = 0
        self._consensus: dict[str, Any] | None = None
        self._closing = threading.Event()
        self._warned = False
        (node.plan.folder / REQUEST).unlink(missing_ok=True)
        self._thread = threading.Thread(target=self._run, name="swiftfl-service", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closing.wait(_EVERY):
            self.look()

    def look(self) -> None:
        """Take requests, and write what has changed."""
        folder, node = self._node.plan.folder, self._node
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
        own, mean = self._evaluate(self._node.x), self._evaluate(model.x)
        self._consensus = {"epoch": model.epoch, "nodes": model.nodes, "evaluation": mean, "own": own}
        self._node.say(f"consensus of {model.nodes} nodes: {_shown(mean)} here; its own model: {_shown(own)}")

    def status(self) -> dict[str, Any]:
        """How the node stands, as plain JSON values."""
        node, control = self._node, self._node.control
        tally, connection, selected = control.tally, node.connection, node.membership.selected
        here = connection.view()
        weights = {} if selected is None else selected[1].w.of
        neighbours = {}
        for k, name in connection.names.items():
            newest = node.client.server.gate.newest.get(k)
            neighbours[name] = {
                "here": k in here,
                "weight": weights.get(k, 0.0) if k in here else 0.0,
                "steps": None if newest is None else split(newest)[1],
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
        }

    def close(self, phase: str) -> None:
        """The last word."""
        self._closing.set()
        self._thread.join(5.0)
        self.phase = phase
        self.look()


def _shown(values: dict[str, float | None]) -> str:
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


def ask_for_consensus(folder: Path, seconds: float) -> dict[str, Any]:
    """Ask the node that runs here to begin one; what came of it."""
    before = read_status(folder)
    if before["silent"]:
        raise UserError(f"node {before['name']} does not run: start it with swiftfl node {folder}/node.yaml")
    epoch = (before["consensus"] or {}).get("epoch", 0)
    (folder / REQUEST).touch()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = read_status(folder)["consensus"]
        if found is not None and found["epoch"] != epoch:
            return dict(found)
        time.sleep(0.1)
    raise UserError(
        f"no consensus came about in {seconds:g} s: ask again (somebody may have come or gone meanwhile), or "
        "give it more --seconds"
    )
