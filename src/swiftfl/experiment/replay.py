"""Replaying a recorded live run, and comparing it with what was recorded."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from swiftfl.engines.live.replay import replay
from swiftfl.errors import UserError
from swiftfl.experiment.build import build
from swiftfl.experiment.code import refuse_changed_code
from swiftfl.experiment.config import Config, parse
from swiftfl.experiment.given import Given
from swiftfl.record import RunFolder
from swiftfl.record.folder import CLIENTS
from swiftfl.vector import Vector, consensus
from swiftfl.workload.base import follow


@dataclass(frozen=True)
class ReplayComparison:
    """What a replay found; `different` names the clients whose models are not those of the run."""

    algorithm: str
    clients: int
    compared: int
    different: list[int]
    largest_difference: float
    loss: float
    accuracy: float | None
    seconds: float
    models: list[Vector]


def replay_run(
    path: Path,
    progress: Callable[[int, int], None] = lambda done, total: None,
    given: Given | None = None,
    accept_changes: bool = False,
) -> ReplayComparison:
    """Replay a finished live run; whoever was lost has no final model to compare with.

    Objects that were given when it was run are given again; changed code is refused as by `resume`.
    """
    folder = RunFolder.open(path)
    config = parse(folder.read_object("config.json"))
    if not config.engine.real:
        raise UserError(
            f"{path} is a run of the {config.engine.name} engine: run it again with the same seed"
        )
    if not (path / "summary.json").is_file():
        raise UserError(f"{path} has not finished: resume it first")
    refuse_changed_code(config, accept_changes)
    summary, recorded = folder.read_json("summary.json"), folder.read_models()["models"]
    began = time.perf_counter()
    setup = build(_without_pauses(config), given).setup
    models = replay(setup, path / CLIENTS, progress)
    members = [i for i in range(setup.n) if i not in summary["lost"]]
    different = [i for i in members if not np.array_equal(models[i], recorded[i], equal_nan=True)]
    gaps = [float(np.abs(models[i].astype(np.float64) - recorded[i]).max()) for i in different]
    rows = folder.read_rows("metrics.jsonl")
    follow(setup.workload, [float(rows[-1]["epoch"]) if rows else 0.0] * setup.n)
    (evaluation,) = setup.workload.evaluate([consensus([models[i] for i in members])])
    return ReplayComparison(
        config.algorithm.name,
        setup.n,
        len(members),
        different,
        max(gaps, default=0.0),
        evaluation.loss,
        evaluation.accuracy,
        time.perf_counter() - began,
        models,
    )


def _without_pauses(config: Config) -> Config:
    """Gradients that were replaced by a sleep need not take their time again."""
    if config.engine.live.gradient_seconds is None:
        return config
    return config.with_changes({"engine.live.gradient_seconds": 0.0})
