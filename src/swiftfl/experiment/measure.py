"""What is measured of a run: while it goes on, and at its end."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from swiftfl.engines.simulation.world import World
from swiftfl.vector import Vector, consensus, consensus_distance


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


def measure(world: World, clients: int) -> Measurement:
    """Evaluate the consensus model, and up to `clients` client models, spread evenly."""
    began = time.perf_counter()
    models = [world.models[i] for i in world.members()] or world.models
    centre = consensus(models)
    chosen = [models[i] for i in spread(len(models), clients)]
    whole, *each = world.setup.workload.evaluate([centre, *chosen])
    accuracies = [e.accuracy for e in each if e.accuracy is not None]
    result = Measurement(
        iteration=world.iteration,
        epoch=float(np.mean([s / b.steps_per_epoch for s, b in _steps(world)])),
        time=world.now,
        loss=whole.loss,
        accuracy=whole.accuracy,
        mean_client_loss=float(np.mean([e.loss for e in each])) if each else None,
        mean_client_accuracy=float(np.mean(accuracies)) if accuracies else None,
        train_loss=world.loss_sum / world.loss_count if world.loss_count else None,
        consensus_distance=consensus_distance(models, centre),
        models_in_memory=models_in_memory(world),
        evaluation_seconds=time.perf_counter() - began,
        metrics=dict(whole.metrics),
    )
    world.loss_sum, world.loss_count = 0.0, 0
    return result


def times_per_epoch(world: World) -> dict[str, float]:
    """How clients spend their time: means over clients, each per epoch of its own."""
    epochs = [s / b.steps_per_epoch for s, b in _steps(world)]
    times = world.times
    return {
        "compute_seconds_per_epoch": mean_per_epoch(times.compute, epochs),
        "communication_seconds_per_epoch": mean_per_epoch(times.communication, epochs),
        "waiting_seconds_per_epoch": mean_per_epoch(times.waiting, epochs),
    }


def mean_per_epoch(seconds: Sequence[float], epochs: Sequence[float]) -> float:
    """The mean over clients of each one's seconds per epoch, of those who have trained at all."""
    each = [time / trained for time, trained in zip(seconds, epochs, strict=True) if trained > 0]
    return float(np.mean(each)) if each else 0.0


def summarise(world: World, last: Measurement) -> dict[str, Any]:
    """The numbers of the table."""
    split = times_per_epoch(world)
    return {
        "accuracy": last.accuracy,
        "loss": last.loss,
        "seconds_per_epoch": sum(split.values()),
        **split,
        "consensus_distance": last.consensus_distance,
        "mean_client_loss": last.mean_client_loss,
        "mean_client_accuracy": last.mean_client_accuracy,
        "metrics": dict(last.metrics),
        "iterations": world.iteration,
        "virtual_seconds": max(world.times.clock),
        "parameters": world.setup.workload.parameters,
        "models_in_memory": last.models_in_memory,
        "largest_delay": world.largest_delay,
        **_changes(world),
    }


def _changes(world: World) -> dict[str, Any]:
    """Of a network that changes: who is not there at the end, and how often weights were renewed."""
    if world.network is None:
        return {}
    lost = [i for i in range(world.n) if not world.present[i]]
    return {"lost": lost, "renewals": world.network.renewals}


def models_in_memory(world: World) -> int:
    """Distinct models held: one per client, and older versions that a mailbox may still need."""
    held: dict[int, Vector] = {id(x): x for x in world.models}
    for letters in world.mailboxes.letters:
        held.update((id(letter.x), letter.x) for letter in letters)
    return len(held)


def finite(summary: dict[str, Any]) -> dict[str, Any]:
    """With None for what is not a number, such as a diverged loss: JSON has no word for it."""
    return {
        key: None if isinstance(value, float) and not np.isfinite(value) else value
        for key, value in summary.items()
    }


def row(measurement: Measurement) -> dict[str, Any]:
    return asdict(measurement)


def _steps(world: World) -> Any:
    return zip(world.times.steps, world.setup.batches, strict=True)


def spread(n: int, count: int) -> list[int]:
    """`count` of n indices, evenly spread (all of them if there are no more)."""
    if count >= n:
        return list(range(n))
    return [(k * n) // count for k in range(count)]
