"""Three networks of 16 clients: two cliques, four cliques, a ring. ResNet-50 at paper scale."""

from __future__ import annotations

from swiftfl.experiment.config import TopologyConfig
from swiftfl.reproduce.plan import METHODS, Case, Experiment, ReproductionOptions
from swiftfl.reproduce.settings import Setting, experiment

EPOCHS = {"smoke": 3, "small": 5}
TOPOLOGIES = {
    "roc2c": TopologyConfig(name="ring_of_cliques", clients=16, clusters=2),
    "roc4c": TopologyConfig(name="ring_of_cliques", clients=16, clusters=4),
    "ring": TopologyConfig(name="ring", clients=16),
}


def topologies(scale: str, options: ReproductionOptions = ReproductionOptions()) -> Experiment:
    setting = Setting("topologies", scale, options, EPOCHS)
    cases = [
        Case(group, method, setting.config(topology, method))
        for group, topology in TOPOLOGIES.items()
        for method in METHODS
    ]
    groups = {"roc2c": "ring of 2 cliques", "roc4c": "ring of 4 cliques", "ring": "ring"}
    return experiment("topologies", "Topologies: 16 clients", groups, cases)
