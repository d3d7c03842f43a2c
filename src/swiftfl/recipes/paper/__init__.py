"""The experiments of the SWIFT paper: functions that return every case with its full configuration."""

from collections.abc import Callable

from swiftfl.recipes.paper.baseline import baseline
from swiftfl.recipes.paper.clients import clients
from swiftfl.recipes.paper.noniid import noniid
from swiftfl.recipes.paper.plan import METHODS, SCALES, Case, Experiment, Options
from swiftfl.recipes.paper.slowdown import slowdown
from swiftfl.recipes.paper.topologies import topologies

EXPERIMENTS: dict[str, Callable[[str, Options], Experiment]] = {
    recipe.__name__: recipe for recipe in (baseline, noniid, slowdown, clients, topologies)
}

__all__ = ["EXPERIMENTS", "METHODS", "SCALES", "Case", "Experiment", "Options"]
