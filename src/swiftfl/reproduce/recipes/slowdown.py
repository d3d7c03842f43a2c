"""One slow client among 16 in a ring, and one slow link.

Every run ends after the same work: as many client steps as everybody's epochs have together. (With
epochs for each client, as the authors count, a slow client of SWIFT would go on alone for a long
time after all others have finished.) For D-SGD and its kin, which go in step, both are the same.

Where a client is slow, two more cases ask what SWIFT can do about it. `swift_rates` has the influence p set
to the true rates, as the theorem wants it: the slow client's old models then weigh less with its neighbours.
`swift_half` is the same for as long as fits into half of D-SGD's time, with the schedule stretched to that
length: what somebody would do who has a deadline and not a number of steps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from swiftfl.experiment.config import Config, TopologyConfig
from swiftfl.reproduce.plan import METHODS, Case, Experiment, ReproductionOptions
from swiftfl.reproduce.settings import Setting, experiment, planned_steps

EPOCHS = {"smoke": 4, "small": 8}
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


def slowdown(scale: str, options: ReproductionOptions = ReproductionOptions()) -> Experiment:
    setting = Setting("slowdown", scale, options, EPOCHS)
    ring = TopologyConfig(name="ring", clients=16)
    cases = []
    # Links of real machines are as they are: only virtual time can make one slow.
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
    return experiment(
        "slowdown", "Slowdown: 16-client ring, one slow client or link", groups, cases, METHODS | OUR_METHODS
    )


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


def _at_true_rates(setting: Setting, ring: TopologyConfig, group: str) -> Config:
    """SWIFT whose influence is each client's share of the steps, known from the costs."""
    config = _slowed(setting.config(ring, "swift_c0"), group)
    slow, others = _slow_share(config, group), ring.clients - 1
    shares = [slow / (slow + others), *[1 / (slow + others)] * others]
    steps = planned_steps(config)
    return config.with_changes({"influence": shares, "engine.epochs": None, "engine.iterations": steps})


def _half_the_time(setting: Setting, ring: TopologyConfig, group: str) -> Config:
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
