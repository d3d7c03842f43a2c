"""What is measured of a run, by any engine: while it goes on, and at its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from swiftfl.engines.engine import Engine
from swiftfl.engines.simulation.engine import Simulation
from swiftfl.experiment.stages import stage
from swiftfl.vector import Vector, consensus, consensus_distance
from swiftfl.workload.base import Evaluation, Workload, follow


@dataclass(frozen=True)
class Measurement:
    """The models at one moment. Losses are of the test set unless they say otherwise."""

    iteration: int
    epoch: float
    time: float
    loss: float
    accuracy: float | None
    mean_client_loss: float | None
    mean_client_accuracy: float | None
    train_loss: float | None
    consensus_distance: float
    models_in_memory: int
    evaluation_seconds: float
    metrics: Mapping[str, float] = field(default_factory=dict)


def measure(engine: Engine, clients: int) -> Measurement:
    """Evaluate the consensus of the newest models, and up to `clients` client models, spread evenly."""
    iteration, now, epochs = engine.iteration, engine.now, engine.epochs()
    stage("evaluating the first models")  # of later ones nobody is told: the run has begun
    everybody = engine.models
    models = [everybody[i] for i in engine.members()] or everybody
    workload = engine.setup.workload
    evaluate = engine.evaluate if isinstance(engine, Simulation) else workload.evaluate
    assessed = assess(workload, models, clients, epochs, evaluate)
    return measurement_of(engine, iteration, now, epochs, assessed)


def measurement_of(
    engine: Engine, iteration: int, now: float, epochs: Sequence[float], assessed: Mapping[str, Any]
) -> Measurement:
    """What was found of the models that the engine had at some moment."""
    return Measurement(
        iteration=iteration,
        epoch=float(np.mean(epochs)),
        time=now,
        train_loss=engine.take_train_loss(),
        models_in_memory=engine.models_in_memory,
        **assessed,
    )


def assess(
    workload: Workload,
    models: Sequence[Vector],
    clients: int,
    epochs: Sequence[float],
    evaluate: Callable[[Sequence[Vector]], list[Evaluation]] | None = None,
) -> dict[str, Any]:
    """The numbers of a measurement that models alone give; plain, so that another process can find them.

    `evaluate` is who looks at the models, the workload itself unless told otherwise.
    """
    began = time.perf_counter()
    follow(workload, epochs)
    centre = consensus(models)
    chosen = [models[i] for i in spread(len(models), clients)]
    whole, *each = (evaluate or workload.evaluate)([centre, *chosen])
    accuracies = [e.accuracy for e in each if e.accuracy is not None]
    return {
        "loss": whole.loss,
        "accuracy": whole.accuracy,
        "mean_client_loss": float(np.mean([e.loss for e in each])) if each else None,
        "mean_client_accuracy": float(np.mean(accuracies)) if accuracies else None,
        "consensus_distance": consensus_distance(models, centre),
        "metrics": dict(whole.metrics),
        "evaluation_seconds": time.perf_counter() - began,
    }


def times_per_epoch(engine: Engine) -> dict[str, float]:
    """How clients spend their time: means over clients, each per epoch of its own."""
    epochs, seconds = engine.epochs(), engine.seconds()
    return {
        f"{name}_seconds_per_epoch": mean_per_epoch(seconds[name], epochs)
        for name in ("compute", "communication", "waiting")
    }


def mean_per_epoch(seconds: Sequence[float], epochs: Sequence[float]) -> float:
    """The mean over clients of each one's seconds per epoch, of those who have trained at all."""
    each = [time / trained for time, trained in zip(seconds, epochs, strict=True) if trained > 0]
    return float(np.mean(each)) if each else 0.0


def summarise(engine: Engine, last: Measurement) -> dict[str, Any]:
    """The numbers of the table, and those that only this engine has."""
    split = times_per_epoch(engine)
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
        "parameters": engine.setup.workload.parameters,
        "models_in_memory": last.models_in_memory,
        **mean_ages(engine),
        **engine.figures(),
    }


def mean_ages(engine: Engine) -> dict[str, Any]:
    """How many steps behind neighbours' models were when they were averaged (docs/watching.md)."""
    ages = engine.client_records()["age"].astype(np.float64)
    known = ages[np.isfinite(ages)]
    return {
        "mean_age": float(known.mean()) if known.size else None,
        "mean_age_of_clients": [age if np.isfinite(age) else None for age in ages.tolist()],
    }


def row(measurement: Measurement) -> dict[str, Any]:
    return asdict(measurement)


def spread(n: int, count: int) -> list[int]:
    """`count` of n indices, evenly spread (all of them if there are no more)."""
    if count >= n:
        return list(range(n))
    return [(k * n) // count for k in range(count)]
