"""What is measured of a live run: the same numbers as of a simulated one, from real clocks."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from swiftfl.engines.influence import RateReport, rate_report
from swiftfl.engines.live.inbox import REASONS
from swiftfl.engines.live.local.engine import Local
from swiftfl.engines.live.mpi.engine import Mpi
from swiftfl.experiment.measure import Measurement, mean_per_epoch, spread
from swiftfl.vector import consensus, consensus_distance


def measure_live(engine: Local | Mpi, clients: int) -> Measurement:
    """Evaluate the consensus of the clients' newest models, and up to `clients` of them, as they are now."""
    began = time.perf_counter()
    iteration, now = engine.iteration, engine.now
    everybody = engine.models()
    models = [everybody[i] for i in engine.members()] or everybody
    centre = consensus(models)
    whole, *each = engine.setup.workload.evaluate(
        [centre, *(models[i] for i in spread(len(models), clients))]
    )
    accuracies = [e.accuracy for e in each if e.accuracy is not None]
    return Measurement(
        iteration=iteration,
        epoch=float(np.mean(_epochs(engine))),
        time=now,
        loss=whole.loss,
        accuracy=whole.accuracy,
        mean_client_loss=float(np.mean([e.loss for e in each])) if each else None,
        mean_client_accuracy=float(np.mean(accuracies)) if accuracies else None,
        train_loss=engine.train_loss(),
        consensus_distance=consensus_distance(models, centre),
        models_in_memory=engine.models_in_memory,
        evaluation_seconds=time.perf_counter() - began,
        metrics=dict(whole.metrics),
    )


def summarise_live(engine: Local | Mpi, last: Measurement) -> dict[str, Any]:
    """The numbers of the table; times are means over the clients that are left, per epoch of their own."""
    split = {
        f"{name}_seconds_per_epoch": per_epoch(engine, name)
        for name in ("compute", "communication", "waiting")
    }
    refused = {reason: int(sum(engine.board.column(reason))) for reason in REASONS}
    return {
        "accuracy": last.accuracy,
        "loss": last.loss,
        "seconds_per_epoch": sum(split.values()),
        **split,
        "consensus_distance": last.consensus_distance,
        "mean_client_loss": last.mean_client_loss,
        "mean_client_accuracy": last.mean_client_accuracy,
        "metrics": dict(last.metrics),
        "iterations": engine.iteration,
        "wall_seconds": engine.now,
        "start_seconds": engine.start_seconds,
        "parameters": engine.setup.workload.parameters,
        "models_in_memory": last.models_in_memory,
        "lost": sorted(engine.lost),
        "restarts": {str(i): count for i, count in enumerate(engine.restarts) if count},
        "renewals": 0 if engine.network is None else engine.network.renewals,
        "refused": sum(refused.values()),
        "refused_because": refused,
        "saves_failed": int(sum(engine.board.column("saves_failed"))),
        "cpu_milliseconds_per_step": _cpu_per_step(engine),
        **rates(engine).row(),
        "warnings": engine.warnings[:20],
    }


def rates(engine: Local | Mpi) -> RateReport:
    """Given and true influence of those who are left."""
    board = engine.board
    seconds = board.rows[:, [*map(board.at, ("compute", "communication", "waiting"))]].sum(axis=1).tolist()
    weights = [terms.w for terms in engine.terms]
    given = engine.given_influence()
    return rate_report(engine.members(), given, weights, board.column("steps"), seconds)


def _epochs(engine: Local | Mpi) -> list[float]:
    counters = engine.board.column("c")
    return [(c - 1) / b.steps_per_epoch for c, b in zip(counters, engine.setup.batches, strict=True)]


def per_epoch(engine: Local | Mpi, name: str) -> float:
    """Seconds of the board's column (compute, communication, waiting, cpu): mean over those who are left."""
    seconds, steps, batches = engine.board.column(name), engine.board.column("steps"), engine.setup.batches
    there = engine.members()
    return mean_per_epoch([seconds[i] for i in there], [steps[i] / batches[i].steps_per_epoch for i in there])


def _cpu_per_step(engine: Local | Mpi) -> float:
    steps = sum(engine.board.column("steps"))
    return 1e3 * sum(engine.board.column("cpu")) / steps if steps else 0.0
