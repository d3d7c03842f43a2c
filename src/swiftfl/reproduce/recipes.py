"""The experiments of the SWIFT paper: functions that return every case with its full configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from swiftfl.experiment.config import Config, TopologyConfig
from swiftfl.reproduce.plan import (
    METHODS,
    Case,
    Experiment,
    ExperimentSetting,
    ReproductionOptions,
    planned_steps,
)
from swiftfl.reproduce.printed import printed

EPOCHS = {
    "baseline": {"smoke": 5, "small": 8},
    "noniid": {"smoke": 3, "small": 4},
    "slowdown": {"smoke": 4, "small": 8},
    "clients": {"smoke": 3, "small": 5},
    "topologies": {"smoke": 3, "small": 5},
}
"""Of the scales below `paper`."""
TRAINED, PREDICTED = (2, 4, 8, 16), (64, 256)
"""Numbers of clients: those that are trained, and those of which only the times are predicted."""
TOPOLOGIES = {
    "roc2c": TopologyConfig(name="ring_of_cliques", clients=16, clusters=2),
    "roc4c": TopologyConfig(name="ring_of_cliques", clients=16, clusters=4),
    "ring": TopologyConfig(name="ring", clients=16),
}
CYCLIC_STEP_SIZE = 0.002
"""Of the CNN: the smallest of five that were tried, with few epochs of SWIFT C_0 and D-SGD and one seed."""
SLOW_CLIENT = 0
FACTORS = {"1x": 1, "2x": 2, "4x": 4, "16x": 16}
SLOW_LINK = (0, 1)
LINK_STEPS = 10
"""How many gradients a client computes while a message is on the slow link."""
TRAINED_BELOW_PAPER = ("swift_c0", "dsgd_c0")
OUR_METHODS = {
    "swift_rates": "SWIFT C_0, p = rates",
    "swift_half": "SWIFT C_0, p = rates, half of D-SGD's time",
}
RATES_IN, HALF_IN = ("4x", "16x"), ("4x",)


def baseline(scale: str, options: ReproductionOptions = ReproductionOptions()) -> Experiment:
    """A ring of 16 clients, data dealt out at random, everybody equally fast."""
    setting = ExperimentSetting("baseline", scale, options, EPOCHS["baseline"])
    ring = TopologyConfig(name="ring", clients=16)
    cases = [Case("ring16", method, setting.config(ring, method)) for method in METHODS]
    groups = {"ring16": "16-client ring"}
    return Experiment("baseline", "Baseline: 16-client ring, IID", groups, METHODS, tuple(cases))


def clients(scale: str, options: ReproductionOptions = ReproductionOptions()) -> Experiment:
    """More clients share the same data: rings of 2 to 16 as in the paper, and 64 and 256 (times only)."""
    setting = ExperimentSetting("clients", scale, options, EPOCHS["clients"])
    cases = [
        Case(str(n), method, setting.config(TopologyConfig(name="ring", clients=n), method), n in TRAINED)
        for n in (*TRAINED, *PREDICTED)
        for method in METHODS
    ]
    groups = {str(n): f"{n} clients" for n in (*TRAINED, *PREDICTED)}
    return Experiment("clients", "Number of clients: rings of 2 to 256", groups, METHODS, tuple(cases))


def topologies(scale: str, options: ReproductionOptions = ReproductionOptions()) -> Experiment:
    """Three networks of 16 clients: two cliques, four cliques, a ring. ResNet-50 at scale `paper`."""
    setting = ExperimentSetting("topologies", scale, options, EPOCHS["topologies"])
    cases = [
        Case(group, method, setting.config(topology, method))
        for group, topology in TOPOLOGIES.items()
        for method in METHODS
    ]
    groups = {"roc2c": "ring of 2 cliques", "roc4c": "ring of 4 cliques", "ring": "ring"}
    return Experiment("topologies", "Topologies: 16 clients", groups, METHODS, tuple(cases))


def noniid(scale: str, options: ReproductionOptions = ReproductionOptions()) -> Experiment:
    """Non-IID data: 10 clients in a ring of three cliques; a share of each client's samples has one label.

    The paper's step size of 0.8 is for 300 epochs of a network with batch norm. The CNN of `small` has none
    and is given the same one as everywhere (`SMALL_STEP_SIZE`), except for `cyclic`. There every client has
    one class only, and with that step size SWIFT and D-SGD both collapse to a constant answer.
    """
    setting = ExperimentSetting("noniid", scale, options, EPOCHS["noniid"])
    cliques = TopologyConfig(name="ring_of_cliques", clients=10, clusters=3)
    degrees = {
        f"{degree:.0%}".rstrip("%"): degree for degree in printed()["noniid_roc3c_10_resnet18"]["degrees"]
    }
    partitions = {key: f"label_skew:{degree:g}" for key, degree in degrees.items()}
    partitions["cyclic"] = "cyclic_classes"
    methods = {key: label for key, label in METHODS.items() if key != "adpsgd_c0"}
    cases = [
        Case(group, method, _with_smaller_steps(setting.config(cliques, method, partition), scale))
        for group, partition in partitions.items()
        for method in methods
    ]
    groups = {key: f"degree {degree:g}" for key, degree in degrees.items()} | {"cyclic": "cyclic classes"}
    return Experiment("noniid", "Non-IID: 10 clients, ring of 3 cliques", groups, methods, tuple(cases))


def _with_smaller_steps(config: Config, scale: str) -> Config:
    """With the step size of cyclic classes, where it is needed."""
    if scale != "small" or config.data.partition != "cyclic_classes":
        return config
    return config.with_changes({"algorithm.step_size.initial": CYCLIC_STEP_SIZE})


def slowdown(scale: str, options: ReproductionOptions = ReproductionOptions()) -> Experiment:
    """One slow client among 16 in a ring, and one slow link.

    Every run ends after the same work: as many client steps as everybody's epochs have together. (With
    epochs for each client, as the authors count, a slow client of SWIFT would go on alone for a long
    time after all others have finished.) For D-SGD and the other synchronous methods both are the same.

    Where a client is slow, two more cases ask what SWIFT can do about it. `swift_rates` has the influence p
    set to the true rates, as the theorem wants it: the slow client's old models then weigh less with its
    neighbours. `swift_half` is the same for as long as fits into half of D-SGD's time, with the schedule
    stretched to that length, for users who have a deadline and not a number of steps.
    """
    setting = ExperimentSetting("slowdown", scale, options, EPOCHS["slowdown"])
    ring = TopologyConfig(name="ring", clients=16)
    cases = []
    # Only virtual time can slow down one link.
    groups = {key: f"one client {key} slower" for key in FACTORS} | {"1x": "no slowdown"}
    if options.engine == "virtual":
        groups["link"] = f"one link of {LINK_STEPS} steps"
    for group in groups:
        for method in METHODS:
            config = setting.config(ring, method)
            steps = planned_steps(config)
            config = _slowed(config, group).with_changes({"engine.epochs": None, "engine.iterations": steps})
            trained = setting.at_paper or method in TRAINED_BELOW_PAPER
            cases.append(Case(group, method, config, trained))
    cases += [Case(group, "swift_rates", _at_true_rates(setting, ring, group)) for group in RATES_IN]
    cases += [Case(group, "swift_half", _half_the_time(setting, ring, group)) for group in HALF_IN]
    title = "Slowdown: 16-client ring, one slow client or link"
    return Experiment("slowdown", title, groups, METHODS | OUR_METHODS, tuple(cases))


def _slowed(config: Config, group: str) -> Config:
    costs = config.engine.costs
    changes: dict[str, Any] = {}
    if group == "link":
        assert costs.message_bytes is not None  # every hardware profile has it
        journey = max(LINK_STEPS * costs.compute - costs.latency, costs.compute)
        bandwidth = costs.message_bytes / journey
        changes["engine.costs.links"] = [
            {"edge": SLOW_LINK, "latency": costs.latency, "bandwidth": bandwidth}
        ]
    elif FACTORS[group] > 1:
        changes["engine.costs.slowdowns"] = [{"client": SLOW_CLIENT, "factor": FACTORS[group]}]
    return config.with_changes(changes)


def _at_true_rates(setting: ExperimentSetting, ring: TopologyConfig, group: str) -> Config:
    """SWIFT whose influence is each client's share of the steps, known from the costs."""
    config = _slowed(setting.config(ring, "swift_c0"), group)
    slow, others = _slow_share(config, group), ring.clients - 1
    shares = [slow / (slow + others), *[1 / (slow + others)] * others]
    steps = planned_steps(config)
    return config.with_changes({"influence": shares, "engine.epochs": None, "engine.iterations": steps})


def _half_the_time(setting: ExperimentSetting, ring: TopologyConfig, group: str) -> Config:
    """As many epochs as half of D-SGD's time has, of which only the slowest client's computing is counted."""
    config = setting.config(ring, "swift_c0")
    waiting = FACTORS[group] * config.engine.costs.compute
    epochs = max(1, int(setting.length * waiting / _seconds_per_step(config, 1) / 2))
    longer = _at_true_rates(replace(setting, options=replace(setting.options, epochs=epochs)), ring, group)
    taken = (ring.clients - 1 + _slow_share(config, group)) / ring.clients  # by then, of what is planned
    return longer.with_changes({"engine.iterations": round(taken * (longer.engine.iterations or 0))})


def _slow_share(config: Config, group: str) -> float:
    """Steps of the slow client while another takes one."""
    return _seconds_per_step(config, 1) / _seconds_per_step(config, FACTORS[group])


def _seconds_per_step(config: Config, factor: float) -> float:
    """Of SWIFT on a ring: a gradient, and two neighbours' models sent and averaged."""
    costs = config.engine.costs
    return factor * costs.compute + 2 * (costs.send + costs.mix)


EXPERIMENTS: dict[str, Callable[[str, ReproductionOptions], Experiment]] = {
    recipe.__name__: recipe for recipe in (baseline, noniid, slowdown, clients, topologies)
}
