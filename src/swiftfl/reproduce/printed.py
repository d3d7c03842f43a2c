"""The numbers that the SWIFT paper printed: its tables and its hyperparameters, as data beside this file."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from swiftfl.experiment.algorithm_config import StepSizeConfig


@cache
def printed() -> dict[str, Any]:
    """All of it, by table.

    >>> printed()["baseline_ring16_resnet18"]["dsgd_c0"]
    {'epoch': 1.558, 'comm': 0.627}
    """
    text = (resources.files("swiftfl.reproduce") / "printed.json").read_text()
    tables: dict[str, Any] = json.loads(text)
    return tables


def hyperparameters(experiment: str) -> dict[str, Any]:
    """What an experiment was run with."""
    found: dict[str, Any] = printed()["hyperparameters"][experiment]
    return found


def step_size(experiment: str, initial: float | None = None, epochs: int | None = None) -> StepSizeConfig:
    """The printed schedule; for other `epochs` it is shrunk in proportion, from another `initial` one.

    >>> step_size("baseline").options["at"], step_size("baseline", epochs=20).options["at"]
    ((81, 122), (8, 12))
    """
    h = hyperparameters(experiment)
    decay = h["decay"]
    share = 1.0 if epochs is None else epochs / h["epochs"]

    def scaled(epoch: int) -> int:
        return max(1, round(epoch * share))

    return StepSizeConfig.model_validate(
        {
            "initial": h["step_size"] if initial is None else initial,
            "rate": decay["rate"],
            "at": tuple(scaled(epoch) for epoch in decay.get("at", ())),
            "start": scaled(decay["from"]) if "from" in decay else None,
            "period": scaled(decay.get("every", 1)) if "from" in decay else 1,
        }
    )
