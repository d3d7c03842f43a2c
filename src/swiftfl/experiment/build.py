"""From a configuration to the objects of a run."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from swiftfl.algorithm import Algorithm
from swiftfl.algorithms import ALGORITHMS, Context
from swiftfl.costs import Costs, Link, Slowdown
from swiftfl.data.augment import Augment
from swiftfl.data.batches import Batches
from swiftfl.data.dataset import Dataset
from swiftfl.data.partition import Partition
from swiftfl.data.registry import dataset
from swiftfl.data.split import split, uneven_work
from swiftfl.engines import Setup
from swiftfl.engines.membership import Dynamics, Membership
from swiftfl.engines.simulation.sampled import Sampled
from swiftfl.engines.simulation.virtual import Virtual
from swiftfl.errors import UserError
from swiftfl.experiment.algorithm_config import AlgorithmConfig
from swiftfl.experiment.config import Config, TopologyConfig
from swiftfl.experiment.network_config import NetworkConfig
from swiftfl.graph import Coefficients, Topology, communication_coefficients, topology
from swiftfl.graph.files import read_topology
from swiftfl.graph.influence import given, proportional_to, uniform
from swiftfl.memory import require_memory
from swiftfl.moments import ResetMoments
from swiftfl.rules import UpdateRule
from swiftfl.transports.registry import CODECS
from swiftfl.verbs import Verb
from swiftfl.workload.base import Workload
from swiftfl.workload.emulated import Emulated
from swiftfl.workload.models import model
from swiftfl.workload.module import ModuleWorkload

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Parts:
    """What a run is made of, for those who report on it."""

    data: Dataset
    partition: Partition
    workload: ModuleWorkload
    topology: Topology
    coefficients: Coefficients
    setup: Setup
    notes: tuple[str, ...] = ()
    """What the user should know of the data before the run."""

    def engine(self, name: str) -> Virtual | Sampled:
        return Virtual(self.setup) if name == "virtual" else Sampled(self.setup)


def build(config: Config) -> Parts:
    """Make everything; whatever is impossible in a configuration is said here, before anything runs."""
    torch.set_num_threads(1)  # more threads make a busy machine ten times slower
    graph = build_topology(config.topology, config.seed)
    data = dataset(config.data.dataset, config.data.folder, **config.data.options)
    parts = split(data, graph.n, config.seed, config.data.partition)
    workload = ModuleWorkload(
        model(config.model.name, data.shape, data.classes or 1, config.model.norm, **config.model.options),
        data,
        augment=Augment(seed=config.seed) if config.data.augment else None,
        device=build_device(config.model.device),
        batching=config.model.batching,
        seed=config.seed,
        name=config.model.name,
        metrics=config.evaluation.metrics,
    )
    method = weights_method(config.algorithm)
    coefficients = communication_coefficients(graph, build_influence(config, parts), method)
    size, drop_last = config.data.batch_size, config.data.drop_last
    batches = [Batches(parts[i], size, config.seed, client=i, drop_last=drop_last) for i in range(graph.n)]
    pause = config.engine.live.gradient_seconds if config.engine.real else None
    setup = Setup(
        algorithm=build_algorithm(config.algorithm, graph, config.seed),
        workload=workload if pause is None else Emulated(workload, pause),
        weights=[coefficients.weights(i) for i in range(graph.n)],
        batches=batches,
        step_size=config.algorithm.step_size.make(config.engine.epochs),
        influence=coefficients.influence.tolist(),
        costs=build_costs(config),
        barrier=config.engine.barrier,
        ccs=config.engine.ccs,
        epochs=config.engine.epochs,
        iterations=config.engine.iterations,
        seed=config.seed,
        network=build_network(config, coefficients),
        codec=partial(CODECS[config.engine.codec], **config.engine.codec_options),
        buffers=config.model.buffers,
    )
    check_memory(config.engine.name, graph.n, workload, setup.algorithm.rule)
    _log.debug("built %d clients, %d edges, models of %d parameters", graph.n, graph.m, workload.parameters)
    uneven = uneven_work(parts.sizes, size) if config.engine.epochs is not None else None
    notes = data.notes if uneven is None else (*data.notes, uneven)
    return Parts(data, parts, workload, graph, coefficients, setup, notes)


_KEPT = {"virtual": 2, "sampled": 2, "local": 3}
"""Models per client, at least: in simulations its own and, at the end, the copy that is written; with real
processes its own, and in shared memory the newest and the one that is being written. MPI ranks may be on
hosts of their own: only one is counted."""


def check_memory(engine: str, clients: int, workload: Workload, rule: UpdateRule) -> None:
    """Refuse a federation whose models no memory here can hold, before the second one is made."""
    x = np.zeros(workload.parameters + workload.buffers, dtype=np.float32)  # takes no memory until it is used
    memory = sum(array.nbytes for array in rule.init(x).values())
    require_memory(
        f"a federation of {clients} clients with models of {x.size} numbers each",
        clients * (_KEPT[engine] * x.nbytes + memory) if engine in _KEPT else x.nbytes + memory,
    )


def build_device(name: str) -> str:
    """The name of a device that works here."""
    try:
        torch.zeros(1, device=name).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0].split(". ")[0]
        raise UserError(f"device {name!r} cannot be used here: {reason}") from None
    return name


def build_topology(config: TopologyConfig, seed: int) -> Topology:
    if isinstance(config.edges, str):
        return read_topology(config.edges)
    if config.edges is not None:
        return Topology(config.clients, config.edges)
    return topology(config.name, config.clients, config.clusters, seed, **config.options)


def resolve(config: Config) -> Config:
    """The same run with nothing left to look up: the edges of a file, and the weights' method."""
    changes: dict[str, Any] = {"algorithm.weights": weights_method(config.algorithm)}
    if isinstance(config.topology.edges, str):
        graph = build_topology(config.topology, config.seed)
        changes["topology.name"] = Path(config.topology.edges).name
        changes["topology.clients"] = graph.n
        changes["topology.edges"] = graph.edges.tolist()
    return config.with_changes(changes)


def build_influence(config: Config, parts: Partition) -> np.ndarray:
    """The scores that are given; measured ones start from uniform."""
    if config.influence in ("uniform", "measured"):
        return uniform(len(parts))
    if config.influence == "data":
        return proportional_to(parts.sizes)
    return given([float(score) for score in config.influence], len(parts))


def build_costs(config: Config) -> Costs:
    c = config.engine.costs
    plain = c.model_dump(exclude={"slowdowns", "links"})
    return Costs(
        **plain,
        slowdowns=tuple(Slowdown(s.client, s.factor, s.start, s.end or math.inf) for s in c.slowdowns),
        links={(min(k.edge), max(k.edge)): Link(k.latency, k.bandwidth) for k in c.links},
        seed=config.seed,
    )


def build_network(config: Config, coefficients: Coefficients) -> Callable[[], Membership] | None:
    """A network that changes, made anew for every engine; None for one that stays as it is."""
    c = config.engine.network
    changing = c != NetworkConfig() or config.influence == "measured"
    if not (changing or config.engine.real or config.engine.ccs == "distributed"):
        return None
    dynamics = Dynamics(
        changes=tuple(planned.change for planned in c.changes),
        rates=c.rates,
        notice=c.notice,
        renewal=c.renewal,
        measured=config.influence == "measured",
        keep_objective=config.objective == "as_given",
        measure_every=c.measure_every,
    )
    dynamics.check(coefficients.topology.n)
    dynamics.check_plan([(i, j) for i, j in coefficients.topology.edges.tolist()])
    if config.engine.name == "sampled":
        dynamics.check_without_clock()
    given = coefficients.influence.tolist()
    return lambda: Membership(coefficients.topology, given, coefficients.method, dynamics, config.seed)


def weights_method(config: AlgorithmConfig) -> str:
    """What was asked for, or what the algorithm is made for."""
    return config.weights or ALGORITHMS[config.name].weights


def build_algorithm(config: AlgorithmConfig, graph: Topology, seed: int) -> Algorithm[Verb]:
    context = Context(graph, config.update_rule(), seed)
    algorithm = ALGORITHMS[config.name].make(context, **config.options)
    return ResetMoments(algorithm) if config.moments == "reset" else algorithm
