"""More clients share the same data: rings of 2 to 16 as in the paper, and 64 and 256 (times only)."""

from __future__ import annotations

from swiftfl.experiment.config import TopologyConfig
from swiftfl.reproduce.plan import METHODS, Case, Experiment, ReproductionOptions
from swiftfl.reproduce.settings import Setting, experiment

EPOCHS = {"smoke": 3, "small": 5}
TRAINED = (2, 4, 8, 16)
PREDICTED = (64, 256)


def clients(scale: str, options: ReproductionOptions = ReproductionOptions()) -> Experiment:
    setting = Setting("clients", scale, options, EPOCHS)
    cases = [
        Case(str(n), method, setting.config(TopologyConfig(name="ring", clients=n), method), n in TRAINED)
        for n in (*TRAINED, *PREDICTED)
        for method in METHODS
    ]
    groups = {str(n): f"{n} clients" for n in (*TRAINED, *PREDICTED)}
    return experiment("clients", "Number of clients: rings of 2 to 256", groups, cases)
