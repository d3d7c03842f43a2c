"""`swiftfl graph --optimise-influence`: which influence to choose for a network, speeds and data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from swiftfl.errors import UserError
from swiftfl.graph import Topology
from swiftfl.graph.optimal_influence import InfluenceProblem, Prediction
from swiftfl.graph.theory import Problem

DEFAULTS = {"L": 1.0, "M": 32.0, "sigma": 1.0, "zeta": 0.5, "delta": 2.0}
"""Constants of the prediction, unless --theory gives others."""
SECONDS = 1000.0


def read_scores(option: str, text: str | None, n: int) -> list[float] | None:
    """One number per client, with commas between; None if the option was not given."""
    if text is None:
        return None
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"{option} {text}: give one number per client, with commas between") from None
    if len(values) != n:
        raise UserError(f"{option}: {len(values)} numbers were given for {n} clients")
    for i, value in enumerate(values):
        if not (math.isfinite(value) and value > 0):
            raise UserError(f"{option}: {value:g} of client {i} must be a positive number")
    return values


def best_influence(
    topology: Topology,
    rates: str | None,
    sizes: str | None,
    constants: Mapping[str, float] | None,
    seconds: float | None,
) -> tuple[dict[str, Prediction], dict[str, float]]:
    """What uniform, data, rates and the best influence are predicted to reach; and what was assumed."""
    assumed = {**DEFAULTS, **(constants or {}), "seconds": SECONDS if seconds is None else seconds}
    problem = Problem(
        L=assumed["L"],
        M=assumed["M"],
        Delta_f=assumed["delta"],
        sigma2=assumed["sigma"] ** 2,
        zeta2=assumed["zeta"] ** 2,
    )
    n = topology.n
    asked = InfluenceProblem(
        topology,
        read_scores("--rates", rates, n),
        read_scores("--sizes", sizes, n),
        problem,
        assumed["seconds"],
    )
    return {**asked.candidates(), "optimal": asked.optimise()}, assumed


def influence_summary(found: Mapping[str, Prediction], assumed: Mapping[str, float]) -> dict[str, Any]:
    """For `--json`."""
    return {
        "assumed": dict(assumed),
        "choices": {
            name: {
                "influence": one.influence.tolist(),
                "level": one.level,
                "descent": one.descent,
                "bias": one.bias,
                "disagreement": one.disagreement,
                "step_size": one.step_size,
                "agreement": one.agreement,
            }
            for name, one in found.items()
        },
    }


def influence_rows(found: Mapping[str, Prediction], assumed: Mapping[str, float]) -> list[tuple[str, str]]:
    """Names and values for the table."""
    rows = [("predicted for", ", ".join(f"{name} = {value:g}" for name, value in assumed.items()))]
    for name, one in found.items():
        parts = (
            f"descent {one.descent:.4g}, bias {one.bias:.4g}, disagreement {one.disagreement:.4g}; "
            f"agreement {one.agreement:.4g}/s"
        )
        rows.append((f"level, {name}", f"{one.level:.4g} ({parts})"))
    return rows
