"""Runs whose models are tensors on the cpu, with one of every algorithm that processes can run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from makers import MAKERS
from swiftfl.engines import Setup
from swiftfl.experiment.build import build
from swiftfl.experiment.recipes import recipe
from swiftfl.rules import SgdRule

RULE = SgdRule(0.5)
CLIENTS = 4
SIMULATED = {"divshare", "hogwild", "asysg"}
LIVE = sorted(set(MAKERS) - SIMULATED)
CHANGED_BY_OTHERS = {"adpsgd", "adpsgd, background", "swarm", "gossip_async", "a2cid2"}
"""Of these a run is not recorded so that it could be repeated: who averages when is up to the machine."""


def setup(vectors: str, algorithm: str, **more: Any) -> Setup:
    changes = {
        "model.vectors": vectors,
        "engine.name": "local",
        "engine.epochs": 3,
        "topology.clients": CLIENTS,
        **more,
    }
    parts = build(recipe("digits").with_changes(changes))
    return replace(parts.setup, algorithm=MAKERS[algorithm](parts.topology, RULE))
