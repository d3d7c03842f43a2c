"""The common task of the laboratory: eight clients in a ring learn the digits of the package.

An MLP, batches of 16, momentum 0.9, messages of 1 MB, in virtual time: a gradient takes 10 ms, a message 1.2
ms on an ordinary link. Data and networks are those of `DATA` and `NETWORKS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from swiftfl.engines import VirtualEngine
from swiftfl.experiment.build import build, build_costs
from swiftfl.experiment.config import Config
from swiftfl.experiment.measure import measure
from swiftfl.experiment.recipes import recipe
from swiftfl.reproduce.laboratory.methods import MESSAGE_BYTES
from swiftfl.reproduce.laboratory.plan import SCALES, InquiryScale, TrialGroup

LEARNER = f"{__name__}:learn"
CLIENTS = 8
BEHIND = (2, 6)
"""A quarter of the clients: those that are slow, or behind slow links."""
SLOWER, SLOWER_LINKS = 4.0, 20.0
SPREAD = 0.2
_NO_END = 10**9
_COMMON: dict[str, Any] = {
    "topology.clients": CLIENTS,
    "algorithm.momentum": 0.9,
    "engine.epochs": None,
    "engine.iterations": _NO_END,
    "engine.costs.message_bytes": MESSAGE_BYTES,
}


@dataclass(frozen=True)
class DataKind:
    """How data are dealt out, and the test loss to which times are measured."""

    label: str
    partition: str
    target: float


DATA = {
    "iid": DataKind("IID", "iid", 0.4),
    "skew": DataKind("skew 0.7", "label_skew:0.7", 0.5),
    "dirichlet": DataKind("Dirichlet 0.1", "dirichlet:0.1", 1.0),
}
SMOKE_TARGET = 2.0
"""The test loss that the few steps of that scale are enough for; a model that knows nothing has 2.3."""


def _links() -> list[dict[str, Any]]:
    """Every link of a quarter of the clients is twenty times slower: a message takes two steps."""
    plain = Config().engine.costs
    slow = {"latency": plain.latency, "bandwidth": plain.bandwidth / SLOWER_LINKS}
    ring = [(i, (i + 1) % CLIENTS) for i in range(CLIENTS)]
    return [{"edge": list(edge), **slow} for edge in ring if {*edge} & {*BEHIND}]


NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "lockstep": ("lockstep", {}),
    "spread": ("20 % spread", {"engine.costs.spread": SPREAD}),
    "slow_clients": (
        "slow clients",
        {
            "engine.costs.spread": SPREAD,
            "engine.costs.slowdowns": [{"client": i, "factor": SLOWER} for i in BEHIND],
        },
    ),
    "latency": ("latency of one step", {"engine.costs.spread": SPREAD, "engine.costs.latency": 0.010}),
    "slow_links": ("slow links", {"engine.costs.spread": SPREAD, "engine.costs.links": _links()}),
}


def group(scale: InquiryScale, data: str, network: str, label: str = "") -> TrialGroup:
    name, changes = NETWORKS[network]
    kind = DATA[data]
    target = SMOKE_TARGET if scale == SCALES["smoke"] else kind.target
    return TrialGroup(label or f"{kind.label}, {name}", swift_seconds(changes, scale.steps), target)


def world(data: str, network: str, method: dict[str, Any]) -> dict[str, Any]:
    """The settings of one trial."""
    return {"data.partition": DATA[data].partition, **NETWORKS[network][1], **method}


def swift_seconds(changes: dict[str, Any], steps: int) -> float:
    """How long SWIFT takes for so many steps of all clients: each at its own pace, on a ring.

    >>> round(swift_seconds({}, 720), 6)
    0.918
    """
    costs = build_costs(recipe("digits").with_changes({**_COMMON, **changes}))
    slower = {slow.client: slow.factor for slow in costs.slowdowns}
    rates = [
        1.0 / (costs.compute * slower.get(i, 1.0) + 2.0 * (costs.send + costs.mix)) for i in range(CLIENTS)
    ]
    return steps / math.fsum(rates)


@cache
def _plain() -> Config:
    return recipe("digits").with_changes(_COMMON)


def learn(
    world: dict[str, Any],
    *,
    step_size: float,
    seed: int,
    steps: int,
    seconds: float,
    every: int,
    clients: bool,
    between: Callable[[VirtualEngine], None] | None = None,
) -> dict[str, Any]:
    """One run until both budgets are used up, measured every so many client steps; `clients`: whether the
    clients' own models are measured, too; `between` is called before each measurement but the first."""
    config = _plain().with_changes({**world, "seed": seed, "algorithm.step_size.initial": step_size})
    with closing(VirtualEngine(build(config).setup)) as engine:
        rows = _curve(engine, steps, seconds, every, clients, between)
        return {"rows": rows, **_cost(engine)}


def _curve(
    engine: VirtualEngine,
    steps: int,
    seconds: float,
    every: int,
    clients: bool,
    between: Callable[[VirtualEngine], None] | None,
) -> list[dict[str, Any]]:
    engine.start()
    rows = [_row(engine, clients)]
    while engine.iteration < steps or engine.now < seconds:
        before = engine.iteration, engine.now
        left = steps - engine.iteration
        engine.advance(min(every, left) if left > 0 else every)
        if between is not None:
            between(engine)
        rows.append(_row(engine, clients))
        if not math.isfinite(rows[-1]["loss"]) or (engine.iteration, engine.now) == before:
            break
    return rows


def _row(engine: VirtualEngine, clients: bool) -> dict[str, Any]:
    found = measure(engine, clients=CLIENTS if clients else 0)
    row = {
        "iteration": found.iteration,
        "time": round(found.time, 6),
        "loss": round(found.loss, 6),
        "accuracy": round(found.accuracy or 0.0, 6),
    }
    if clients:
        own = {"client_loss": found.mean_client_loss, "client_accuracy": found.mean_client_accuracy}
        row |= {name: round(value or 0.0, 6) for name, value in own.items()}
    return row


def _cost(engine: VirtualEngine) -> dict[str, float]:
    """Messages of a model's size that a client sends per step, on average, and the share of time spent
    waiting."""
    sent = float(np.sum(engine.figures()["communication"]["bytes"]))
    seconds = {part: float(np.sum(each)) for part, each in engine.seconds().items()}
    return {
        "models": sent / (MESSAGE_BYTES * max(1, engine.iteration)),
        "waiting": seconds["waiting"] / (math.fsum(seconds.values()) or 1.0),
    }
