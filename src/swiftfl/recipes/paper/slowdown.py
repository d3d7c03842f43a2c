"""One slow client among 16 in a ring, and one slow link.

Every run ends after the same work: as many client steps as everybody's epochs have together. (With
epochs for each client, as the authors count, a slow client of SWIFT would go on alone for a long
time after all others have finished.) For D-SGD and its kin, which go in step, both are the same.
"""

from __future__ import annotations

from typing import Any

from swiftfl.experiment.config import Config, TopologyConfig
from swiftfl.recipes.paper.plan import METHODS, Case, Experiment, Options
from swiftfl.recipes.paper.settings import Setting, experiment, planned_steps

EPOCHS = {"smoke": 4, "small": 8}
SLOW_CLIENT = 0
FACTORS = {"1x": 1, "2x": 2, "4x": 4, "16x": 16}
SLOW_LINK = (0, 1)
LINK_STEPS = 10
"""How many gradients a client computes while a message is on the slow link."""
TRAINED_BELOW_PAPER = ("swift_c0", "dsgd_c0")


def slowdown(scale: str, options: Options = Options()) -> Experiment:
    setting = Setting("slowdown", scale, options, EPOCHS)
    ring = TopologyConfig(name="ring", clients=16)
    cases = []
    for group in (*FACTORS, "link"):
        for method in METHODS:
            config = setting.config(ring, method)
            steps = planned_steps(config)
            config = _slowed(config, group).with_changes({"engine.epochs": None, "engine.iterations": steps})
            trained = setting.at_paper or method in TRAINED_BELOW_PAPER
            cases.append(Case(group, method, config, trained))
    groups = {key: f"one client {key} slower" for key in FACTORS}
    groups |= {"1x": "no slowdown", "link": f"one link of {LINK_STEPS} steps"}
    return experiment("slowdown", "Slowdown: 16-client ring, one slow client or link", groups, cases)


def _slowed(config: Config, group: str) -> Config:
    costs = config.engine.costs
    changes: dict[str, Any] = {}
    if group == "link":
        assert costs.message_bytes is not None  # every hardware profile has it
        bandwidth = costs.message_bytes / (LINK_STEPS * costs.compute - costs.latency)
        changes["engine.costs.links"] = [
            {"edge": SLOW_LINK, "latency": costs.latency, "bandwidth": bandwidth}
        ]
    elif FACTORS[group] > 1:
        changes["engine.costs.slowdowns"] = [{"client": SLOW_CLIENT, "factor": FACTORS[group]}]
    return config.with_changes(changes)
