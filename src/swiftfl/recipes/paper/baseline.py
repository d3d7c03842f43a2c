"""The baseline table: a ring of 16 clients, data dealt out at random, everybody equally fast."""

from __future__ import annotations

from swiftfl.experiment.config import TopologyConfig
from swiftfl.recipes.paper.plan import METHODS, Case, Experiment, Options
from swiftfl.recipes.paper.settings import Setting, experiment

EPOCHS = {"smoke": 5, "small": 8}


def baseline(scale: str, options: Options = Options()) -> Experiment:
    setting = Setting("baseline", scale, options, EPOCHS)
    ring = TopologyConfig(name="ring", clients=16)
    cases = [Case("ring16", method, setting.config(ring, method)) for method in METHODS]
    return experiment("baseline", "Baseline: 16-client ring, IID", {"ring16": "16-client ring"}, cases)
