"""What is measured of a live run: the same numbers as of a simulated one, from real clocks."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from swiftfl.engines.live.local.engine import Local
from swiftfl.engines.live.mpi.engine import Mpi
from swiftfl.experiment.measure import Measurement, mean_per_epoch, spread
from swiftfl.vector import consensus, consensus_distance


def measure_live(engine: Local | Mpi, clients: int) -> Measurement:
    """Evaluate the consensus of the clients' newest models, and up to `clients` of them, as they are now."""
    began = time.perf_counter()
    iteration, now = engine.iteration, engine.now
    everybody = engine.models
    models = [everybody[i] for i in engine.members()] or everybody
    centre = consensus(models)
    whole, *each = engine.setup.workload.evaluate(
        [centre, *(models[i] for i in spread(len(models), clients))]
    )
    accuracies = [e.accuracy for e in each if e.accuracy is not None]
    return Measurement(
        iteration=iteration,
        epoch=float(np.mean(engine.epochs())),
        time=now,
        loss=whole.loss,
        accuracy=whole.accuracy,
        mean_client_loss=float(np.mean([e.loss for e in each])) if each else None,
        mean_client_accuracy=float(np.mean(accuracies)) if accuracies else None,
        train_loss=engine.take_train_loss(),
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
        "parameters": engine.setup.workload.parameters,
        "models_in_memory": last.models_in_memory,
        **engine.figures(),
    }


def per_epoch(engine: Local | Mpi, name: str) -> float:
    """Seconds of a kind (compute, communication, waiting, cpu): mean over those who are left."""
    seconds, epochs, there = engine.seconds()[name], engine.epochs(), engine.members()
    return mean_per_epoch([seconds[i] for i in there], [epochs[i] for i in there])
