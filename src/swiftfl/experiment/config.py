"""The full, typed configuration of a run: what a recipe returns and what a run folder records.

Names are looked up in the registries, and options are checked against the parameters of what they name; a
configuration holds every option that applies, and no other. `imports` are modules to import first: they
register things of one's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from swiftfl.algorithms import ALGORITHMS
from swiftfl.errors import UserError
from swiftfl.experiment.algorithm_config import AlgorithmConfig
from swiftfl.experiment.engine_config import EngineConfig
from swiftfl.experiment.faults_config import FaultsConfig
from swiftfl.experiment.imports import import_modules
from swiftfl.experiment.learning_config import DataConfig, ModelConfig
from swiftfl.experiment.network_config import NetworkConfig
from swiftfl.experiment.options import Tree, leave_options_behind, named, replace
from swiftfl.experiment.own import found_again, own_name
from swiftfl.experiment.privacy_config import PrivacyConfig
from swiftfl.experiment.record_config import RecordConfig
from swiftfl.experiment.section import Section
from swiftfl.experiment.source import reference
from swiftfl.graph.registry import topologies_with, topology_options
from swiftfl.graph.topology import Topology
from swiftfl.registry import UnknownNameError
from swiftfl.settings import (
    AboutSettingError,
    Count,
    SettingError,
    checked_options,
    no_such_setting,
    requirement,
)
from swiftfl.trackers.registry import TRACKERS
from swiftfl.workload.metrics import METRICS


class TopologyConfig(Section):
    """A named topology with its options (`clusters` is one of them), or `edges`: a file, or pairs."""

    name: str = "ring"
    """The graph of who talks to whom."""
    clients: Count = 16
    """The number of clients."""
    clusters: Count | None = None
    """Cliques of ring_of_cliques."""
    options: Tree = {}
    """Options of the topology, such as degree of random_regular."""
    edges: str | list[tuple[int, int]] | None = None
    """A file of edges, or pairs of clients, in place of a name."""

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, tree: Any) -> Any:
        name, options = named(tree, "name", "ring")
        if name is None or tree.get("edges") is not None:
            return tree
        given = dict(options)
        if tree.get("clusters") is not None:
            given["clusters"] = tree["clusters"]
        owner, known = f"topology {name}", topology_options(name)
        try:
            values = checked_options(owner, known, given, "topology.options.", topologies_with)
        except SettingError as error:
            raise error.renamed(error.key.replace("options.clusters", "clusters")) from None
        values = {key: value for key, value in values.items() if value is not None}
        return {**tree, "clusters": values.pop("clusters", None), "options": values}

    @model_validator(mode="after")
    def _pairs_make_a_graph(self) -> TopologyConfig:
        if isinstance(self.edges, list):
            try:
                Topology(self.clients, self.edges)
            except UserError as error:
                raise SettingError("topology.edges", f": {error}") from None
        return self


class EvaluationConfig(Section):
    """How often models are evaluated, of how many clients the mean loss is taken, and by which metrics."""

    every_epochs: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """Epochs between evaluations of a simulated run."""
    clients: Annotated[int, Field(ge=0)] = 64
    """Of how many clients the own models are evaluated, too."""
    metrics: tuple[str, ...] = ()
    """Metrics besides loss and accuracy."""

    @field_validator("metrics")
    @classmethod
    def _exist(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        names = tuple(own_name(name) for name in names)
        for name in names:
            METRICS[name]  # an unknown one is refused with the names that there are
        return names


class SourceConfig(Section):
    """A file of the user's own that a run uses."""

    said: str
    """What the user wrote for it."""
    digest: str
    """The SHA-256 of its bytes."""


class Config(Section):
    """All of a run."""

    imports: tuple[str, ...] = ()
    """Modules or .py files to import first: they register things of your own."""
    experiment: str | None = None
    """The function of your own that gave the objects of this run, as in mine.py:experiment."""
    data: DataConfig = DataConfig()
    """What is learnt from."""
    model: ModelConfig = ModelConfig()
    """What is trained."""
    topology: TopologyConfig = TopologyConfig()
    """Who talks to whom."""
    influence: Literal["uniform", "data", "measured"] | list[float] = "uniform"
    """How much each client counts: uniform, by data size, by its measured share of the steps, or scores."""
    objective: Literal["as_run", "as_given"] = "as_run"
    """With measured influence: whether step sizes are scaled to keep the given objective."""
    algorithm: AlgorithmConfig = AlgorithmConfig()
    """What the clients do. Options of the algorithm and of the update rule stand beside."""
    engine: EngineConfig = EngineConfig(epochs=10)
    """Where and how long it runs."""
    privacy: PrivacyConfig = PrivacyConfig()
    """What of a client's samples may be known from what it sends."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """What is measured, and how often."""
    faults: FaultsConfig = FaultsConfig()
    """Clients that misbehave, for studies."""
    record: RecordConfig = RecordConfig()
    """What is written into the run folder beside its results."""
    trackers: tuple[str, ...] = ()
    """Where else the run is recorded: tensorboard, mlflow, wandb."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Of everything that is random."""
    sources: dict[str, SourceConfig] = {}
    """The files of your own that the run uses; filled in when it begins."""

    @field_validator("experiment")
    @classmethod
    def _is_a_reference(cls, name: str | None) -> str | None:
        if name is not None and reference(name) is None:
            raise ValueError("it must be a function of your own, as in mine.py:experiment")
        return None if name is None else own_name(name)

    @model_validator(mode="before")
    @classmethod
    def _import_first(cls, tree: Any) -> Any:
        """What the modules register is known when the names of the sections are looked up."""
        if not isinstance(tree, Mapping):
            return tree
        tree = found_again(tree)
        names = tree.get("imports")
        if isinstance(names, list | tuple) and all(isinstance(name, str) for name in names):
            import_modules(names)
        return tree

    @field_validator("trackers")
    @classmethod
    def _trackers_exist(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            TRACKERS[name]
        return tuple(dict.fromkeys(names))

    @model_validator(mode="after")
    def _measuring_needs_time(self) -> Config:
        if self.objective == "as_given" and self.influence != "measured":
            raise ValueError(
                "objective as_given needs influence measured: it scales steps by given over true"
            )
        if self.influence == "measured" and self.engine.name == "sampled":
            raise ValueError("measured influence needs time: the virtual engine or a live one")
        self.engine.network.check_engine(self.engine.name)
        self.privacy.check_network(self.engine.network)
        return self

    @model_validator(mode="after")
    def _poison_reaches_neighbours(self) -> Config:
        if self.faults.poison and not ALGORITHMS[self.algorithm.name].weighted:
            able = ", ".join(name for name, entry in ALGORITHMS.items() if entry.weighted)
            raise SettingError(
                "faults.poison",
                f"is for algorithms whose clients average with their neighbours by weights: {able}, not "
                f"{self.algorithm.name}",
            )
        return self

    @model_validator(mode="after")
    def _distributed_needs_ccs(self) -> Config:
        entry = ALGORITHMS[self.algorithm.name]
        if self.engine.ccs == "central":
            return self
        if not entry.weighted:
            raise SettingError("engine.ccs", f"has no effect: {entry.name} has weights of its own")
        weights = self.algorithm.weights or entry.weights
        if weights != "ccs":
            raise SettingError(
                "engine.ccs", f"distributed selects weights ccs, not {weights}: add --weights ccs"
            )
        if self.engine.network.renewal != NetworkConfig().renewal:
            raise SettingError(
                "engine.network.renewal", "has no effect with ccs distributed: messages take their own time"
            )
        return self

    def with_changes(self, changes: Mapping[str, Any]) -> Config:
        """This configuration with some values replaced, by dotted name, and validated again.

        Where another algorithm (or rule, topology, dataset, model) is chosen, options of the old one that the
        new one does not have are left behind.

        >>> Config().with_changes({"algorithm.name": "dsgd"}).algorithm.name
        'dsgd'
        """
        for key in list[object](changes):
            if not isinstance(key, str):
                raise UserError(f"a setting is changed by its name, as in 'engine.epochs', not by {key!r}")
        tree = self.model_dump()
        if isinstance(changes.get("imports"), list | tuple):
            import_modules(changes["imports"])
        leave_options_behind(tree, changes)
        for key in sorted(changes, key=lambda key: key.count(".")):  # a section before what is inside
            replace(tree, key, changes[key])
        return parse(tree)


def parse(tree: Tree) -> Config:
    """A configuration from plain values; what is wrong is reported on one line."""
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise _reported(error) from None


def check_named_files(config: Config) -> None:
    """Refuse files of input that are not there, by the key that names them."""
    named = {"topology.edges": config.topology.edges, "engine.costs.devices": config.engine.costs.devices}
    for key, file in named.items():
        if isinstance(file, str) and not Path(file).exists():
            raise SettingError(key, f": there is no file {file}")


def _reported(error: ValidationError) -> UserError:
    # Where a value may have several types, there is an error for each: the one that went furthest. A
    # misspelt name is also missing.
    told = max(error.errors(), key=lambda e: (len(e["loc"]), e["type"] != "missing"))
    cause = told.get("ctx", {}).get("error")
    if isinstance(cause, SettingError | UnknownNameError):
        return cause
    # pydantic names the type too in such cases, as `literal['a','b']`.
    named = [str(part) for part in told["loc"] if not str(part).endswith("]")]
    if not named:
        return UserError(told["msg"].removeprefix("Value error, "))
    key = ".".join(named)
    if isinstance(cause, UserError):
        return AboutSettingError(key, str(cause))
    if told["type"] == "extra_forbidden":
        return no_such_setting(key, *_known(named[:-1]))
    return SettingError(key, requirement(told))


def _known(path: list[str]) -> tuple[list[str], str]:
    """The settings of the section at this path, and what to call it."""
    section: type[BaseModel] = Config
    for part in path:
        kind = section.model_fields[part].annotation if part in section.model_fields else section
        (inner,) = get_args(kind) if get_origin(kind) is list else (kind,)  # in a list the number follows
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            break
        section = inner
    return list(section.model_fields), ".".join(path) or "a configuration"
