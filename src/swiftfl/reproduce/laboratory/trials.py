"""Trials as parts: first each is tuned, then run with fresh seeds at the step sizes that were found."""

from __future__ import annotations

import math
from functools import cache, partial
from typing import Any

from swiftfl.experiment.worker import load
from swiftfl.reproduce.laboratory.plan import (
    FIRST_TUNING_SEED,
    PATIENCE,
    STEPS,
    TARGET,
    TIME,
    Inquiry,
    Row,
    Trial,
    at,
    time_to_loss,
    walk,
)
from swiftfl.reproduce.parts import Parameters, Part, Result

CARRIED = "carried"
"""The choice of a step size that was tuned in another group (for equal steps)."""


def _parameters(inquiry: Inquiry, trial: Trial) -> Parameters:
    scale, group = inquiry.scale, inquiry.groups[trial.group]
    return {
        "learner": inquiry.learner,
        "world": trial.world,
        "steps": scale.steps,
        "seconds": group.seconds,
        "every": max(1, scale.steps // scale.points),
    }


def tuning_part(inquiry: Inquiry, trial: Trial) -> Part:
    """The step size for each budget."""
    scale = inquiry.scale
    seeds = [FIRST_TUNING_SEED + k for k in range(scale.tuning_seeds)]
    parameters = {**_parameters(inquiry, trial), "step_sizes": list(scale.step_sizes), "seeds": seeds}
    parameters["patience"] = PATIENCE  # results of another rule are not these
    if inquiry.to_target:
        parameters["target"] = inquiry.groups[trial.group].target
    return Part(f"tune-{trial.group}-{trial.method}", tune, parameters)


def fresh_part(inquiry: Inquiry, trial: Trial, choices: dict[str, float], seed: int) -> Part:
    """One run per step size that was chosen, with a seed that was not tuned on."""
    parameters = {**_parameters(inquiry, trial), "choices": choices, "seed": seed}
    return Part(f"{trial.group}-{trial.method}-seed{seed}", fresh, parameters)


def run(parameters: Parameters, step_size: float, seed: int, clients: bool) -> dict[str, Any]:
    """One run: its rows, and what else the learner tells of it."""
    learner = load(parameters["learner"])
    found: dict[str, Any] = learner(
        parameters["world"],
        step_size=step_size,
        seed=seed,
        steps=parameters["steps"],
        seconds=parameters["seconds"],
        every=parameters["every"],
        clients=clients,
    )
    return found


def tune(parameters: Parameters) -> Result:
    """In a worker process: the step size that the rule finds for each budget, and all losses that it saw."""
    limits = {STEPS: parameters["steps"], TIME: parameters["seconds"]}
    kinds = [*limits, *([TARGET] if "target" in parameters else [])]

    @cache
    def curves(step_size: float) -> tuple[list[Row], ...]:
        return tuple(run(parameters, step_size, seed, False)["rows"] for seed in parameters["seeds"])

    seen: dict[str, dict[str, float]] = {kind: {} for kind in kinds}

    def score(kind: str, step_size: float) -> float:
        found = [
            at(rows, kind, limits[kind], "loss") if kind in limits else _time(rows, parameters["target"])
            for rows in curves(step_size)
        ]
        seen[kind][f"{step_size:g}"] = math.fsum(found) / len(found)
        return seen[kind][f"{step_size:g}"]

    chosen = {kind: walk(partial(score, kind), parameters["step_sizes"]) for kind in kinds}
    return {"chosen": chosen, "losses": seen}


def _time(rows: list[Row], target: float) -> float:
    found = time_to_loss(rows, target)
    return math.inf if found is None else found


def fresh(parameters: Parameters) -> Result:
    """In a worker process: the runs of one seed, by step size."""
    step_sizes = sorted(set(parameters["choices"].values()))
    return {f"{lr:g}": run(parameters, lr, parameters["seed"], True) for lr in step_sizes}
