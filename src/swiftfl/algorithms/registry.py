"""Algorithms by name, with their options and the weights that they are made for.

An algorithm's file ends with its entry: a function from what a run gives it (`Context`) and its own
options, which are keyword-only parameters, to the algorithm. Configurations, command line, help texts and
lists follow from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from swiftfl.algorithm import Algorithm, Edges
from swiftfl.graph.topology import Topology
from swiftfl.registry import Registry, absent, made_by
from swiftfl.rules import UpdateRule
from swiftfl.verbs import Verb

Make = Callable[..., Algorithm[Verb]]


@dataclass(frozen=True)
class Context:
    """What a run gives to each of its algorithms."""

    topology: Topology
    rule: UpdateRule
    seed: int = 0
    corrected_steps: bool = False
    """Whether steps are to be as long as the time that they span, where the algorithm `corrects_steps`."""


@dataclass(frozen=True)
class AlgorithmEntry:
    """How an algorithm is made, and with which communication weights unless others are asked for."""

    name: str
    make: Make
    weights: str
    weighted: bool = True  # whether it averages with these weights at all
    averages_models: bool = True  # or gradients, so that all clients have one model
    edges: Edges = "all"
    corrects_steps: bool = False  # whether its steps can be as long as the time that they span
    influenced: bool = True  # whether clients may count more or less than others

    @property
    def in_rounds(self) -> bool | None:
        """Whether its clients meet in rounds; None where the annotation of what is made does not tell."""
        known = {getattr(made, "in_rounds", None) for made in made_by(self.make)}
        told = known.pop() if len(known) == 1 else None
        return told if isinstance(told, bool) else None

    @property
    def summary(self) -> str:
        """The first line of the description."""
        return (self.make.__doc__ or self.name).strip().splitlines()[0]


ALGORITHMS: Registry[AlgorithmEntry] = Registry(
    "algorithm", stand_in=lambda name: AlgorithmEntry(name, absent(name), "metropolis")
)


def algorithm(
    name: str,
    weights: str = "metropolis",
    weighted: bool = True,
    averages_models: bool = True,
    edges: Edges = "all",
    corrects_steps: bool = False,
    influenced: bool = True,
) -> Callable[[Make], Make]:
    """Register a function `(context, *, option=default, ...) -> Algorithm` under this name.

    `weighted=False` for those that never look at their communication weights; `averages_models=False` for
    those that average gradients; `edges="first"` for those that do not use edges which appear later, and
    "none" for those that average over all clients; `corrects_steps=True` for those that look at
    `Context.corrected_steps`; `influenced=False` for those that look neither at their weights nor at
    `Client.influence`.
    """

    def register(make: Make) -> Make:
        entry = AlgorithmEntry(
            name, make, weights, weighted, averages_models, edges, corrects_steps, influenced
        )
        ALGORITHMS.register(name, entry)
        return make

    return register
