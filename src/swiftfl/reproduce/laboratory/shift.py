"""`swiftfl reproduce shift`: how fast methods follow data that change a third of the way.

One of them is SWIFT with influence that reacts: whose loss has risen counts for more, until the others' has.
It is measured here, and no option of a run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from swiftfl.engines import VirtualEngine
from swiftfl.engines.dynamics import Change
from swiftfl.reproduce.laboratory import digits
from swiftfl.reproduce.laboratory.methods import METHODS, labels
from swiftfl.reproduce.laboratory.plan import Inquiry, InquiryScale, Trial

LEARNER = f"{__name__}:learn"
COMPARED = ("swift", "dsgd", "adpsgd")
REACTING = "reacting"
_REACTING: dict[str, Any] = {
    **METHODS["swift"].changes,
    "influence": "measured",  # so that it can be renewed
    "engine.network.measure_every": 10**9,
    REACTING: True,
}
_MEMORY = 0.7
"""Of the mean of recent losses, from one look to the next."""
_MOST = 4.0
"""Times its share that a client may count, or a part of it that it must."""
DATA, NETWORK = "iid", "spread"
LONGER = 3 / 2
"""Than the other experiments."""
_STEPS_PER_EPOCH = 90
"""Of all clients together: 1,437 samples in batches of 16."""
SHIFTED_AT = 1 / 3
WHO: dict[str, tuple[str, dict[str, Any] | None]] = {
    "nobody": ("nothing changes", None),
    "all": ("labels turn at all clients", {"kind": "label_rotation"}),
    "quarter": (
        "labels turn at a quarter of the clients",
        {"kind": "label_rotation", "clients": list(digits.BEHIND)},
    ),
    "noise": (
        "noise at a quarter of the clients",
        {"kind": "input_noise", "scale": 2.0, "clients": list(digits.BEHIND)},
    ),
}


def plan(scale: InquiryScale) -> Inquiry:
    scale = replace(scale, steps=int(LONGER * scale.steps), points=int(LONGER * scale.points))
    groups = {key: digits.group(scale, DATA, NETWORK, label) for key, (label, _) in WHO.items()}
    methods = {**{name: METHODS[name].changes for name in COMPARED}, REACTING: _REACTING}
    trials = [
        Trial(key, name, {**digits.world(DATA, NETWORK, changes), "data.shift": _shift(what, scale)})
        for key, (_, what) in WHO.items()
        for name, changes in methods.items()
    ]
    title = "Shift: data change a third of the way"
    named = {**labels(COMPARED), REACTING: "SWIFT, influence reacts"}
    return Inquiry("shift", title, scale, groups, named, tuple(trials), LEARNER)


def _shift(what: dict[str, Any] | None, scale: InquiryScale) -> list[dict[str, Any]]:
    at = SHIFTED_AT * scale.steps / _STEPS_PER_EPOCH
    return [] if what is None else [{**what, "at": at}]


def learn(world: dict[str, Any], **options: Any) -> dict[str, Any]:
    """A run of the common task, with influence that reacts if the world says so."""
    settings = {key: value for key, value in world.items() if key != REACTING}
    return digits.learn(settings, **options, between=Reaction() if world.get(REACTING) else None)


class Reaction:
    """Influence in proportion to recent losses: new coefficients at each look."""

    def __init__(self) -> None:
        self._losses: npt.NDArray[np.float64] | None = None

    def __call__(self, engine: VirtualEngine) -> None:
        losses = engine.client_records()["loss"].astype(np.float64)
        if engine.churn is None or not np.isfinite(losses).all():
            return
        before = losses if self._losses is None else self._losses
        self._losses = _MEMORY * before + (1 - _MEMORY) * losses
        engine.churn.membership.influence = influence_of(self._losses)
        engine.churn.renew(Change(engine.now, "renew"))


def influence_of(losses: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Shares by loss, none further from the mean than four times.

    >>> influence_of(np.array([1.0, 1.0, 6.0])).round(3).tolist()
    [0.125, 0.125, 0.75]
    """
    scores = np.clip(losses / max(float(losses.mean()), 1e-12), 1 / _MOST, _MOST)
    p: npt.NDArray[np.float64] = scores / scores.sum()
    return p
