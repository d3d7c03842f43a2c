"""Non-IID data: 10 clients in a ring of three cliques, of whose samples a share has one label.

The paper's step size of 0.8 is for 300 epochs of a network with batch norm. The CNN of `small` has none
and is given the same one as everywhere (`settings.SMALL_STEP_SIZE`), but for `cyclic`. There every client
has one class only, and with that step size SWIFT and D-SGD both collapse to a constant answer.
"""

from __future__ import annotations

from swiftfl.experiment.config import Config, TopologyConfig
from swiftfl.reproduce.plan import METHODS, Case, Experiment, ReproductionOptions
from swiftfl.reproduce.printed import printed
from swiftfl.reproduce.settings import Setting, experiment

EPOCHS = {"smoke": 3, "small": 4}
CYCLIC_STEP_SIZE = 0.002
"""Of the CNN: the smallest of five that were tried, with few epochs of SWIFT C_0 and D-SGD and one seed."""


def noniid(scale: str, options: ReproductionOptions = ReproductionOptions()) -> Experiment:
    setting = Setting("noniid", scale, options, EPOCHS)
    cliques = TopologyConfig(name="ring_of_cliques", clients=10, clusters=3)
    degrees = {
        f"{degree:.0%}".rstrip("%"): degree for degree in printed()["noniid_roc3c_10_resnet18"]["degrees"]
    }
    partitions = {key: f"label_skew:{degree:g}" for key, degree in degrees.items()}
    partitions["cyclic"] = "cyclic_classes"
    methods = {key: label for key, label in METHODS.items() if key != "adpsgd_c0"}
    cases = [
        Case(group, method, _gentler(setting.config(cliques, method, partition), scale))
        for group, partition in partitions.items()
        for method in methods
    ]
    groups = {key: f"degree {degree:g}" for key, degree in degrees.items()} | {"cyclic": "cyclic classes"}
    return experiment("noniid", "Non-IID: 10 clients, ring of 3 cliques", groups, cases, methods)


def _gentler(config: Config, scale: str) -> Config:
    """With smaller steps where they are needed."""
    if scale != "small" or config.data.partition != "cyclic_classes":
        return config
    return config.with_changes({"algorithm.step_size.initial": CYCLIC_STEP_SIZE})
