"""Who trains together in loops of their own: the topology, the weights and the algorithm, as a `Setup`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from swiftfl.algorithm import Algorithm
from swiftfl.algorithms import ALGORITHMS, Context
from swiftfl.engines.dynamics import Dynamics
from swiftfl.engines.membership import Membership
from swiftfl.engines.setup import Setup, refuse_in_live
from swiftfl.errors import UserError
from swiftfl.graph import Topology, communication_coefficients, from_edges, from_networkx, topology, uniform
from swiftfl.graph.files import read_topology
from swiftfl.graph.methods import method_names
from swiftfl.mixing import MIXINGS, mixing_named
from swiftfl.registry import options_of, suggestion
from swiftfl.robust import RobustMixing
from swiftfl.rules import SgdRule, UpdateRule
from swiftfl.sample import Batch, Slope
from swiftfl.settings import checked_options, name_and_options
from swiftfl.vector import Vector
from swiftfl.verbs import Verb
from swiftfl.workload.base import Evaluation

_NO_END = 1 << 60  # client steps: the user's loop decides when it ends
_FROM_THE_LOOP = "gradients and evaluations of a training loop of one's own are taken by that loop"


@dataclass(frozen=True)
class Federation:
    """n clients, their edges, and what they do; plain values, so that it can be passed to a process."""

    n: int
    edges: Sequence[Sequence[int]]
    weights: str
    algorithm: str = "swift"
    options: Mapping[str, Any] = field(default_factory=dict)
    mixing: str = "plain"
    mixing_options: Mapping[str, Any] = field(default_factory=dict)

    def pack(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def unpack(cls, packed: str) -> Federation:
        return cls(**json.loads(packed))

    def make_algorithm(self, rule: UpdateRule) -> Algorithm[Verb]:
        context = Context(from_edges([(i, j) for i, j in self.edges], self.n), rule)
        algorithm = ALGORITHMS[self.algorithm].make(context, **self.options)
        mixing = MIXINGS[self.mixing](**self.mixing_options)
        return algorithm if mixing is None else RobustMixing(algorithm, mixing)

    def setup(self, rule: UpdateRule = SgdRule(), parameters: int = 0, buffers: int = 0) -> Setup:
        """The run as engines see it, of models with so many numbers."""
        graph = from_edges([(i, j) for i, j in self.edges], self.n)
        influence = uniform(self.n)
        coefficients = communication_coefficients(graph, influence, self.weights)
        given = influence.tolist()
        return Setup(
            algorithm=self.make_algorithm(rule),
            workload=OwnModel(parameters, buffers),
            weights=[coefficients.weights(i) for i in range(self.n)],
            batches=[OwnBatches(i) for i in range(self.n)],
            step_size=_one,
            influence=given,
            iterations=_NO_END,
            network=partial(Membership, graph, given, self.weights, Dynamics(), 0),
        )


def federation(
    n: int,
    topology: object = "ring",
    weights: str | None = None,
    algorithm: str = "swift",
    mixing: str = "plain",
) -> Federation:
    """From what a user writes: names with options (`random_regular:degree=4`), a file, a graph, or edges."""
    name, given = name_and_options(algorithm)
    entry = ALGORITHMS[name]
    options = checked_options(f"algorithm {name}", options_of(entry.make), given, "algorithm ")
    mixed_by, mixing_options = mixing_named(mixing)
    if mixed_by != "plain" and not entry.weighted:
        raise UserError(f"mixing {mixed_by} has no effect: {name} does not average by weights of neighbours")
    if weights is not None and weights not in method_names():
        raise UserError(f"there is no weight method {weights!r}: {suggestion(weights, method_names())}")
    graph = as_topology(topology, n)
    made = Federation(
        n, graph.edges.tolist(), weights or entry.weights, name, options, mixed_by, mixing_options
    )
    if refuse_in_live(made.setup(), restarts=False) is not None:  # what is impossible is said now
        raise UserError(f"{name} does not send its model, and loops of your own send nothing else")
    return made


def as_topology(given: object, n: int) -> Topology:
    """A topology of n clients, however it is given."""
    found = _topology(given, n)
    if found.n != n:
        raise UserError(f"the topology has {found.n} clients, and {n} were started")
    return found.require_connected()


def _topology(given: object, n: int) -> Topology:
    if isinstance(given, Topology):
        return given
    if isinstance(given, Path) or (isinstance(given, str) and Path(given).is_file()):
        return read_topology(given)
    if isinstance(given, str):
        name, written = name_and_options(given)
        options: dict[str, Any] = {**written}
        return topology(name, n, **options)
    if hasattr(given, "nodes"):
        return from_networkx(given)
    if isinstance(given, Iterable):
        return from_edges([(int(i), int(j)) for i, j in given], n)
    raise UserError(f"topology must be a name, a file, a graph or edges, not {type(given).__name__}")


def _one(epoch: float) -> float:
    """The length of a step is the wrapped optimizer's affair."""
    return 1.0


@dataclass(frozen=True)
class OwnBatches:
    """The data are the loop's own: a batch is only its number."""

    client: int
    steps_per_epoch: int = 1

    def __call__(self, c: int) -> Batch:
        return Batch(self.client, c, np.zeros(0, dtype=np.int64))


@dataclass(frozen=True)
class OwnModel:
    """A workload of which only the size is known here."""

    parameters: int
    buffers: int
    name: str = "a model of one's own"

    def initial(self, seed: int) -> Vector:
        return np.zeros(self.parameters + self.buffers, dtype=np.float32)

    def gradient(self, x: Vector, batch: Batch) -> Slope:
        raise UserError(_FROM_THE_LOOP)

    def gradients(self, xs: Sequence[Vector], batches: Sequence[Batch]) -> list[Slope]:
        raise UserError(_FROM_THE_LOOP)

    def evaluate(self, xs: Sequence[Vector]) -> list[Evaluation]:
        raise UserError(_FROM_THE_LOOP)
