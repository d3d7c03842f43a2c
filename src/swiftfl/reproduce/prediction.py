"""What an epoch of the paper would take: virtual time with gradients that cost nothing.

Time in the virtual world depends on the costs, the graph and the method, but not on what the models are.
So the paper's steps per epoch and message sizes are simulated with models of one number, which takes a
fraction of a second where training takes hours.
"""

from __future__ import annotations

import logging
import math
import sys
from dataclasses import dataclass
from pathlib import Path

from swiftfl.data.batches import NoSamples
from swiftfl.engines import Setup, VirtualEngine
from swiftfl.engines.simulation.clocks import Interval
from swiftfl.errors import UserError
from swiftfl.experiment.build import build_algorithm, build_costs, build_topology, weights_method
from swiftfl.experiment.config import Config
from swiftfl.experiment.costs_config import CostsConfig
from swiftfl.experiment.measure import times_per_epoch
from swiftfl.files import write_json
from swiftfl.graph import Topology, communication_coefficients
from swiftfl.reproduce.hardware import LATENCY, SEND_SHARE, TRAINING_SAMPLES, paper_costs
from swiftfl.reproduce.plan import Experiment
from swiftfl.reproduce.printed import hyperparameters
from swiftfl.schedule import constant
from swiftfl.workload.quadratic import Free

_log = logging.getLogger(__name__)

STEPS_IF_EVEN, STEPS_IF_UNEVEN = 25, 150
"""Simulated at least: where everybody is alike one round is like the next; elsewhere the wave that a slow
client sends through the graph must have passed."""
TIMELINE_STEPS = 12
TIMELINE_SLOW_STEPS = 3
TIMELINE_CLIENTS = 8
FACTORS = (0.5, 1.0, 1.5)
SPREADS = (0.0, 0.1, 0.3)

Times = dict[str, float]


@dataclass(frozen=True)
class TimePrediction:
    """Seconds per epoch, means over clients, and what some clients do at the beginning of the run."""

    times: Times
    clients: int
    seconds: float
    intervals: list[Interval]

    def timeline(self) -> dict[str, object]:
        rows = [[k.client, k.activity, round(k.start, 6), round(k.end, 6)] for k in self.intervals]
        return {"clients": self.clients, "seconds": round(self.seconds, 6), "intervals": rows}


def steps_per_epoch(clients: int, batch_size: int) -> int:
    """Of one client, when the paper's training set is dealt out evenly.

    >>> steps_per_epoch(16, 32)
    98
    """
    return math.ceil(TRAINING_SAMPLES / clients / batch_size)


def predict(config: Config, batch_size: int = 32) -> TimePrediction:
    """One case at the paper's steps per epoch; its data and model play no part."""
    costs = config.engine.costs
    if costs.message_bytes is None:
        raise UserError("a prediction needs engine.costs.message_bytes: no model is trained")
    graph = build_topology(config.topology, config.seed)
    coefficients = communication_coefficients(graph, None, weights_method(config.algorithm))
    steps = steps_per_epoch(graph.n, batch_size)
    engine = VirtualEngine(
        Setup(
            algorithm=build_algorithm(config.algorithm, graph, config.seed),
            workload=Free(1),
            weights=[coefficients.weights(i) for i in range(graph.n)],
            batches=[NoSamples(i, steps) for i in range(graph.n)],
            step_size=constant(0.1),
            influence=coefficients.influence.tolist(),
            costs=build_costs(config),
            barrier=config.engine.barrier,
            epochs=math.ceil((STEPS_IF_UNEVEN if uneven(costs) else STEPS_IF_EVEN) / steps),
            seed=config.seed,
        )
    )
    timeline = engine.watch(clients_shown(graph, costs), timeline_seconds(costs))
    engine.start()
    engine.advance(sys.maxsize)
    times = {name.removesuffix("_seconds_per_epoch"): t for name, t in times_per_epoch(engine).items()}
    return TimePrediction(times, graph.n, timeline.seconds, timeline.intervals)


class PredictionCache:
    """Predictions by configuration, made once: data and model change nothing about them."""

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size
        self._found: dict[str, TimePrediction] = {}

    def predict(self, config: Config) -> TimePrediction:
        key = repr((config.topology, config.algorithm, config.engine.costs, config.engine.barrier))
        if key not in self._found:
            self._found[key] = predict(config, self.batch_size)
        return self._found[key]


def with_costs(config: Config, costs: CostsConfig) -> Config:
    return config.model_copy(update={"engine": config.engine.model_copy(update={"costs": costs})})


def uneven(costs: CostsConfig) -> bool:
    return bool(costs.slowdowns or costs.links or costs.trace or costs.spread or costs.jitter)


def timeline_seconds(costs: CostsConfig) -> float:
    """Some steps of computing and exchanging, and at least a few of the slowest client or link."""
    assert costs.message_bytes is not None
    journey = costs.latency + costs.message_bytes / costs.bandwidth
    links = [link.latency + costs.message_bytes / link.bandwidth for link in costs.links]
    slowest = max([1.0, *(s.factor for s in costs.slowdowns)])
    one_slow_step = max([slowest * costs.compute, *(costs.compute + link for link in links)])
    return max(TIMELINE_STEPS * (costs.compute + journey), TIMELINE_SLOW_STEPS * one_slow_step)


def clients_shown(graph: Topology, costs: CostsConfig) -> list[int]:
    """The slow clients or the ends of slow links (or client 0), and those nearest to them."""
    slow = {s.client for s in costs.slowdowns} | {i for link in costs.links for i in link.edge}
    chosen = sorted(slow) or [0]
    for i in chosen:  # grows while it is gone through: breadth first
        chosen += [k for k in map(int, graph.neighbours(i)) if k not in chosen]
    return sorted(chosen[:TIMELINE_CLIENTS])


def sensitivity(experiment: Experiment, batch_size: int) -> dict[str, dict[str, object]]:
    """How the predictions change with the constants that had to be chosen.

    `send_share` (sending's part of what SWIFT pays per neighbour) and `latency` are halved and raised by
    half; the rest is calibrated again, so that D-SGD and SWIFT C_0 still take the printed times. `spread` is
    that of compute times, which the paper does not report.
    """
    variants = {
        "send_share": {x * SEND_SHARE: paper_costs(send_share=x * SEND_SHARE) for x in FACTORS},
        "latency": {x * LATENCY: paper_costs(latency=x * LATENCY) for x in FACTORS},
        "spread": {s: paper_costs().model_copy(update={"spread": s}) for s in SPREADS},
    }
    known = PredictionCache(batch_size)
    found: dict[str, dict[str, object]] = {}
    for name, by_value in variants.items():
        found[name] = {"values": list(by_value)}
        for case in experiment.cases:
            rows = [known.predict(with_costs(case.config, costs)).times for costs in by_value.values()]
            found[name][case.method] = {
                "epoch": [row["compute"] + row["communication"] for row in rows],
                "communication": [row["communication"] for row in rows],
                "waiting": [row["waiting"] for row in rows],
            }
    return found


def write_predictions(experiment: Experiment, folder: Path) -> None:
    """`predicted.json` and `timelines.json` of all cases, trained or not; of the baseline on the paper's
    hardware `sensitivity.json` too."""
    batch_size: int = hyperparameters(experiment.name)["batch"]
    known = PredictionCache(batch_size)
    predicted: dict[str, dict[str, Times]] = {group: {} for group in experiment.groups}
    timelines: dict[str, dict[str, object]] = {group: {} for group in experiment.groups}
    for case in experiment.cases:
        found = known.predict(case.config)
        _log.debug("%s, %s: %s", case.group, case.method, found.times)
        predicted[case.group][case.method] = found.times
        timelines[case.group][case.method] = found.timeline()
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "predicted.json", predicted)
    write_json(folder / "timelines.json", timelines)
    if experiment.name == "baseline" and experiment.cases[0].config.engine.costs == paper_costs():
        write_json(folder / "sensitivity.json", sensitivity(experiment, batch_size))
