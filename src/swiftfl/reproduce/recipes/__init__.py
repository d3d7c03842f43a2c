"""The experiments of the SWIFT paper: functions that return every case with its full configuration."""

from collections.abc import Callable

from swiftfl.reproduce.plan import METHODS, SCALES, Case, Experiment, ReproductionOptions
from swiftfl.reproduce.recipes.baseline import baseline
from swiftfl.reproduce.recipes.clients import clients
from swiftfl.reproduce.recipes.noniid import noniid
from swiftfl.reproduce.recipes.slowdown import slowdown
from swiftfl.reproduce.recipes.topologies import topologies

EXPERIMENTS: dict[str, Callable[[str, ReproductionOptions], Experiment]] = {
    recipe.__name__: recipe for recipe in (baseline, noniid, slowdown, clients, topologies)
}

__all__ = ["EXPERIMENTS", "METHODS", "SCALES", "Case", "Experiment", "ReproductionOptions"]
