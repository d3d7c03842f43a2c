"""An experiment of the laboratory, measured into one folder.

experiment.json   name, scale, seeds, command and versions, written before anything is measured
parts/            one file per part that has been measured
results.json      what the report reads, written when all parts are there
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from swiftfl.errors import UserError
from swiftfl.files import write_json
from swiftfl.record.folder import versions
from swiftfl.reproduce.laboratory import better, influence, law, rivals, shift
from swiftfl.reproduce.laboratory.plan import FIRST_TUNING_SEED, SCALES, STEPS, Inquiry, InquiryScale
from swiftfl.reproduce.laboratory.trials import CARRIED, fresh_part, tuning_part
from swiftfl.reproduce.parts import Progress, check_scale_of, run_parts

INQUIRIES: dict[str, Callable[[InquiryScale], Inquiry]] = {
    "rivals": rivals.plan,
    "better": better.plan,
    "influence": influence.plan,
    "shift": shift.plan,
}


def check(name: str, scale: str, seeds: int) -> None:
    """Refuse what is impossible. The paper has no such experiments, hence no scale of its own for them."""
    if scale not in SCALES:
        raise UserError(f"{name} has no scale {scale}: choose from {', '.join(SCALES)}")
    if not 1 <= seeds <= FIRST_TUNING_SEED:
        raise UserError(f"seeds must be 1 to {FIRST_TUNING_SEED}, not {seeds}: later ones are for tuning")


def measure(
    name: str,
    scale: str,
    seeds: int,
    folder: Path,
    progress: Progress = lambda *_: None,
    workers: int = 1,
    command: str = "",
) -> None:
    """Tune, then measure with fresh seeds, whatever is not in `folder/parts` yet; write `results.json`."""
    check(name, scale, seeds)
    check_scale_of(folder, scale)
    inquiry = INQUIRIES[name](SCALES[scale])
    folder.mkdir(parents=True, exist_ok=True)
    about = {"name": name, "title": inquiry.title, "scale": scale, "seeds": seeds, "command": command}
    write_json(folder / "experiment.json", {**about, "versions": versions()})
    laws = law.parts(inquiry.scale.law_steps) if name == "better" else []
    total = len(laws) + len(inquiry.trials) * (1 + seeds)

    def later(done_before: int) -> Progress:
        return lambda what, done, _: progress(what, done_before + done, total)

    of_law = run_parts(laws, folder / "parts", later(0), workers)
    tuning = [tuning_part(inquiry, trial) for trial in inquiry.trials]
    tuned = run_parts(tuning, folder / "parts", later(len(laws)), workers)
    choices = _choices(inquiry, tuned)
    planned = [
        (trial, seed, fresh_part(inquiry, trial, chosen, seed))
        for seed in range(seeds)
        for trial, chosen in zip(inquiry.trials, choices, strict=True)
    ]
    found = run_parts(
        [part for *_, part in planned], folder / "parts", later(len(laws) + len(tuning)), workers
    )
    runs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for (trial, seed, _), result in zip(planned, found, strict=True):
        runs.setdefault((trial.group, trial.method), []).append({"seed": seed, "by_step_size": result})
    cells = [
        {
            "group": trial.group,
            "method": trial.method,
            "world": trial.world,
            "step_sizes": chosen,
            "tuning": result["losses"],
            "runs": runs[trial.group, trial.method],
        }
        for trial, chosen, result in zip(inquiry.trials, choices, tuned, strict=True)
    ]
    write_json(folder / "results.json", {**about, **_setting(inquiry), "law": of_law, "cells": cells})


def _choices(inquiry: Inquiry, tuned: list[dict[str, Any]]) -> list[dict[str, float]]:
    """For each trial the step sizes that its fresh runs have, by why they were chosen."""
    chosen = {(t.group, t.method): r["chosen"] for t, r in zip(inquiry.trials, tuned, strict=True)}
    found = []
    for trial in inquiry.trials:
        here = dict(chosen[trial.group, trial.method])
        if trial.group in inquiry.carried:
            here[CARRIED] = chosen[inquiry.carried[trial.group], trial.method][STEPS]
        found.append(here)
    return found


def _setting(inquiry: Inquiry) -> dict[str, Any]:
    scale = inquiry.scale
    return {
        "steps": scale.steps,
        "grid": list(scale.step_sizes),
        "tuning_seeds": [FIRST_TUNING_SEED + k for k in range(scale.tuning_seeds)],
        "methods": inquiry.methods,
        "groups": {key: vars(group) for key, group in inquiry.groups.items()},
        "carried": inquiry.carried,
    }
