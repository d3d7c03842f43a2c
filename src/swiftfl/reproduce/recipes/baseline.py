"""The baseline table: a ring of 16 clients, data dealt out at random, everybody equally fast."""

from __future__ import annotations

from swiftfl.experiment.config import TopologyConfig
from swiftfl.reproduce.plan import METHODS, Case, Experiment, ReproductionOptions
from swiftfl.reproduce.settings import Setting, experiment

EPOCHS = {"smoke": 5, "small": 8}


def baseline(scale: str, options: ReproductionOptions = ReproductionOptions()) -> Experiment:
    setting = Setting("baseline", scale, options, EPOCHS)
    ring = TopologyConfig(name="ring", clients=16)
    cases = [Case("ring16", method, setting.config(ring, method)) for method in METHODS]
    return experiment("baseline", "Baseline: 16-client ring, IID", {"ring16": "16-client ring"}, cases)
