"""From a configuration to the objects of a run."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from swiftfl import small
from swiftfl.algorithm import Algorithm
from swiftfl.algorithms import ALGORITHMS, Context
from swiftfl.costs import Costs, Link, Slowdown
from swiftfl.data.augment import Augment
from swiftfl.data.batches import Batches
from swiftfl.data.dataset import Dataset
from swiftfl.data.partition import Partition
from swiftfl.data.registry import dataset
from swiftfl.data.shift import Drift
from swiftfl.data.split import split, uneven_work
from swiftfl.engines import Setup
from swiftfl.engines.dynamics import Dynamics
from swiftfl.engines.membership import Membership
from swiftfl.engines.setup import own_messages, refuse_in_live
from swiftfl.engines.simulation.helpers import AUTO
from swiftfl.engines.simulation.sampled import SampledEngine
from swiftfl.engines.simulation.virtual import VirtualEngine
from swiftfl.engines.threads import one_thread
from swiftfl.errors import UserError, in_one_line
from swiftfl.experiment.accountant import require_accountant
from swiftfl.experiment.algorithm_config import AlgorithmConfig
from swiftfl.experiment.code import code_of
from swiftfl.experiment.config import Config, TopologyConfig
from swiftfl.experiment.devices import costs_of
from swiftfl.experiment.given import Given
from swiftfl.experiment.learning_config import ModelConfig
from swiftfl.experiment.network_config import NetworkConfig
from swiftfl.experiment.own import metrics_by_name
from swiftfl.experiment.stages import stage
from swiftfl.experiment.starting import place
from swiftfl.graph import Coefficients, Topology, communication_coefficients, topology
from swiftfl.graph.files import read_topology
from swiftfl.graph.influence import given as given_influence
from swiftfl.graph.influence import proportional_to, uniform
from swiftfl.memory import collecting_seldom, require_memory
from swiftfl.moments import ResetMoments
from swiftfl.registry import GIVEN, was_given
from swiftfl.robust import RobustMixing
from swiftfl.rules import UpdateRule
from swiftfl.schedule import Scaled, StepSize, after_warmup
from swiftfl.transports.codec import MakeCodec
from swiftfl.transports.poison import PoisonedCodec
from swiftfl.transports.registry import CODECS
from swiftfl.verbs import Verb
from swiftfl.workload.base import Workload
from swiftfl.workload.emulated import Emulated
from swiftfl.workload.losses import LOSSES
from swiftfl.workload.models import Factory, model
from swiftfl.workload.module import ModuleWorkload
from swiftfl.workload.private import Private

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

    def engine(self, name: str) -> VirtualEngine | SampledEngine:
        return VirtualEngine(self.setup) if name == "virtual" else SampledEngine(self.setup)


def build(config: Config, given: Given | None = None, client: int | None = None) -> Parts:
    """Make everything; whatever is impossible in a configuration is said here, before anything runs.

    Objects that were `given` take the place of what the configuration names. In the own process of a `client`
    of engine local the number says on which device it computes.
    """
    small.expect(config.topology.clients)
    with collecting_seldom(config.topology.clients):
        return _build(config, given or Given(), client)


def _build(config: Config, given: Given, client: int | None) -> Parts:
    given.check(config)
    one_thread()
    stage(f"making the topology of {config.topology.clients:,} clients")
    graph = build_topology(config.topology, config.seed)
    stage("reading the data")
    data = given.data or dataset(config.data.dataset, config.data.folder, **config.data.options)
    stage(f"sharing out the samples among {graph.n:,} clients")
    parts = split(data, graph.n, config.seed, config.data.partition)
    size, drop_last = config.data.batch_size, config.data.drop_last
    batches = [Batches(parts[i], size, config.seed, client=i, drop_last=drop_last) for i in range(graph.n)]
    steps = [each.steps_per_epoch for each in batches]
    shifts = [shift.make() for shift in config.data.shift]
    stage("making the model")
    workload = ModuleWorkload(
        given.model or build_model(config.model, data),
        data,
        loss=given.loss or (None if config.model.loss is None else LOSSES[config.model.loss]),
        augment=Augment(seed=config.seed) if config.data.augment else None,
        drift=Drift(shifts, data, parts.sizes, steps, config.seed) if shifts else None,
        device=place(config, client),
        vectors=config.model.vectors,
        batching=config.model.batching,
        seed=config.seed,
        name=config.model.name.removeprefix(GIVEN),
        metrics={
            **metrics_by_name([name for name in config.evaluation.metrics if not was_given(name)]),
            **given.metrics,
        },
    )
    method = weights_method(config.algorithm)
    stage("computing the communication coefficients")
    coefficients = communication_coefficients(graph, build_influence(config, parts), method)
    stage(f"making {graph.n:,} clients")
    learning: Workload = workload
    if config.privacy.noise:
        learning = build_private(config, workload, parts)
    pause = config.engine.live.gradient_seconds if config.engine.real else None
    setup = Setup(
        algorithm=build_algorithm(config.algorithm, graph, config.seed, given),
        workload=learning if pause is None else Emulated(workload, pause),
        weights=[coefficients.weights(i) for i in range(graph.n)],
        batches=batches,
        step_size=build_step_size(config, given),
        influence=coefficients.influence.tolist(),
        costs=build_costs(config),
        barrier=config.engine.barrier,
        ccs=config.engine.ccs,
        epochs=config.engine.epochs,
        iterations=config.engine.iterations,
        seed=config.seed,
        network=build_network(config, coefficients),
        codec=build_codec(config, graph.n),
        buffers=config.model.buffers,
        workers=AUTO if config.engine.workers == "auto" else config.engine.workers,
    )
    if config.engine.real:
        refuse_in_live(setup, config.engine.live.restart_lost)
    else:
        own_messages(setup)  # or says why not
    check_memory(config.engine.name, graph.n, workload, setup.algorithm.rule)
    _log.debug("built %d clients, %d edges, models of %d parameters", graph.n, graph.m, workload.parameters)
    uneven = uneven_work(parts.sizes, size) if config.engine.epochs is not None else None
    notes = data.notes if uneven is None else (*data.notes, uneven)
    return Parts(data, parts, workload, graph, coefficients, setup, notes)


def build_model(config: ModelConfig, data: Dataset) -> Factory:
    """The named model, for these data."""
    return model(config.name, data.shape, data.classes or 1, config.norm, **config.options)


def build_private(config: Config, workload: ModuleWorkload, parts: Partition) -> Private:
    """The workload with noise; what could not be accounted for is refused."""
    require_accountant()
    everything = np.concatenate(parts.parts)
    if np.unique(everything).size < everything.size:
        raise UserError(
            f"privacy: partition {parts.name} uses samples more than once, which is not accounted for"
        )
    about = config.privacy
    return Private(workload, about.clip, about.noise, config.seed, about.secret)


def build_step_size(config: Config, given: Given) -> StepSize:
    """The named schedule, or the function that was given."""
    c = config.algorithm.step_size
    if given.schedule is None:
        return c.make(config.engine.epochs)
    return after_warmup(Scaled(c.initial, given.schedule), c.warmup)


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


def build_topology(config: TopologyConfig, seed: int) -> Topology:
    if isinstance(config.edges, str):
        return read_topology(config.edges)
    if config.edges is not None:
        return Topology(config.clients, config.edges)
    return topology(config.name, config.clients, config.clusters, seed, **config.options)


def resolve(config: Config) -> Config:
    """The same run with nothing left to look up: edges and devices of files, the weights' method, digests of
    code."""
    changes: dict[str, Any] = {"algorithm.weights": weights_method(config.algorithm)}
    changes["sources"] = code_of(config)
    if isinstance(config.topology.edges, str):
        graph = build_topology(config.topology, config.seed)
        changes["topology.name"] = Path(config.topology.edges).name
        changes["topology.clients"] = graph.n
        changes["topology.edges"] = graph.edges.tolist()
    if config.engine.costs.devices is not None:
        changes |= _costs_of_devices(config, config.engine.costs.devices)
    return config.with_changes(changes)


def _costs_of_devices(config: Config, file: str) -> dict[str, Any]:
    """The numbers of a trace in its place; links keep the common latency."""
    found = costs_of(file, build_topology(config.topology, config.seed), config.data.batch_size, config.seed)
    links = [{**link, "latency": config.engine.costs.latency} for link in found["engine.costs.links"]]
    return {**found, "engine.costs.links": links, "engine.costs.devices": None}


def build_influence(config: Config, parts: Partition) -> np.ndarray:
    """The scores that are given; measured ones start from uniform."""
    if config.influence in ("uniform", "measured"):
        return uniform(len(parts))
    if config.influence == "data":
        return proportional_to(parts.sizes)
    return given_influence([float(score) for score in config.influence], len(parts))


def build_costs(config: Config) -> Costs:
    if config.engine.costs.devices is not None:
        config = config.with_changes(_costs_of_devices(config, config.engine.costs.devices))
    c = config.engine.costs
    plain = c.model_dump(exclude={"slowdowns", "links", "devices"})
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
    edges = {(i, j) for i, j in coefficients.topology.edges.tolist()}
    dynamics.check_plan(edges)
    dynamics.check_presence(coefficients.topology.n, timed=config.engine.name == "virtual")
    check_edges(config, dynamics, edges)
    if config.engine.name == "sampled":
        dynamics.check_without_clock()
    given = coefficients.influence.tolist()
    return lambda: Membership(coefficients.topology, given, coefficients.method, dynamics, config.seed)


def build_codec(config: Config, clients: int) -> MakeCodec:
    """The named codec, behind what clients that misbehave do to their models."""
    codec: MakeCodec = partial(CODECS[config.engine.codec], **config.engine.codec_options)
    poisons = config.faults.poisons(clients)
    return (lambda: PoisonedCodec(codec(), poisons, config.seed)) if poisons else codec


def check_edges(config: Config, dynamics: Dynamics, edges: Collection[tuple[int, int]]) -> None:
    """Refuse changes of edges that the algorithm would not notice."""
    entry, rates = ALGORITHMS[config.algorithm.name], dynamics.rates
    planned = [(change, change.edge) for change in dynamics.changes if change.edge is not None]
    if entry.edges == "none" and (rates.edge_down or rates.edge_up):
        raise UserError(f"rates of edges have no effect: the clients of {entry.name} average over all")
    for change, (i, k) in planned:
        what = f"{change.kind} of {change.concerns} has no effect"
        if entry.edges == "none":
            raise UserError(f"{what}: the clients of {entry.name} average over all, not along edges")
        if entry.edges == "first" and (min(i, k), max(i, k)) not in edges:
            raise UserError(f"{what}: {entry.name} draws its pairs from the edges of the start")


def weights_method(config: AlgorithmConfig) -> str:
    """What was asked for, or what the algorithm is made for."""
    return config.weights or ALGORITHMS[config.name].weights


def _made(make: Callable[[Context], Algorithm[Verb]], context: Context) -> Algorithm[Verb]:
    """An algorithm by a function of the user's own."""
    try:
        return make(context)
    except UserError:
        raise
    except Exception as error:  # whatever it may raise
        raise UserError(f"algorithm: the function that makes it failed: {in_one_line(error)}") from error


def build_algorithm(
    config: AlgorithmConfig, graph: Topology, seed: int, given: Given | None = None
) -> Algorithm[Verb]:
    """The named algorithm with the configuration's update rule, or the one that was given."""
    own = None if given is None else given.algorithm
    if own is not None and not callable(own):
        algorithm = own
    else:
        context = Context(graph, config.update_rule(), seed, config.step_size.corrected)
        made = ALGORITHMS[config.name].make(context, **config.options) if own is None else _made(own, context)
        algorithm = ResetMoments(made) if config.moments == "reset" else made
    mixing = config.mix_rule()
    return algorithm if mixing is None else RobustMixing(algorithm, mixing)
