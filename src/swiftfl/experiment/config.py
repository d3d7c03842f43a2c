"""The full, typed configuration of a run: what a recipe returns and what a run folder records.

Names are looked up in the registries, and options are checked against the parameters of what they name; a
configuration holds every option that applies, and no other. `imports` are modules to import first: they
register things of one's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from swiftfl.algorithms import ALGORITHMS
from swiftfl.costs import Costs
from swiftfl.data.parse import check_spec
from swiftfl.data.registry import dataset_options, has_folder
from swiftfl.engines.live.options import LiveOptions
from swiftfl.engines.setup import Buffers
from swiftfl.errors import UserError
from swiftfl.experiment.algorithm_config import AlgorithmConfig
from swiftfl.experiment.imports import import_modules
from swiftfl.experiment.network_config import NetworkConfig
from swiftfl.experiment.options import Tree, leave_options_behind, models_with, named, replace
from swiftfl.experiment.section import Seconds, Section
from swiftfl.graph.registry import topologies_with, topology_options
from swiftfl.registry import options_of
from swiftfl.settings import Count, SettingError, checked_options, no_such_setting, requirement
from swiftfl.transports.registry import CODECS, TRANSPORTS
from swiftfl.workload.metrics import METRICS
from swiftfl.workload.models import MODELS, model_options


class DataConfig(Section):
    dataset: str = "digits"
    folder: str | None = None
    options: Tree = {}
    partition: str = "iid"
    batch_size: Count = 16
    drop_last: bool = False
    augment: bool = False

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, tree: Any) -> Any:
        name, options = named(tree, "dataset", "digits")
        if name is None:
            return tree
        known = dataset_options(name)
        if tree.get("folder") is not None and not has_folder(name):
            raise SettingError("data.folder", f"is not used: dataset {name} comes from no folder")
        return {**tree, "options": checked_options(f"dataset {name}", known, options, "data.options.")}

    @field_validator("partition")
    @classmethod
    def _exists(cls, spec: str) -> str:
        check_spec(spec)
        return spec


class ModelConfig(Section):
    name: str = "mlp"
    options: Tree = {}
    norm: Literal["batch", "group"] | None = None
    buffers: Buffers = "averaged"
    device: str = "cpu"
    batching: Literal["auto", "measure", "on", "off"] | dict[str, Literal["loop", "batched"]] = "auto"

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, tree: Any) -> Any:
        name, options = named(tree, "name", "mlp")
        if name is None:
            return tree
        known, norm = model_options(name), tree.get("norm")
        default = known.pop("norm", None)
        if norm is not None and default is None:
            normed = [other for other in MODELS if "norm" in model_options(other)]
            raise SettingError("model.norm", f"is for {', '.join(normed)}, not model {name}")
        values = checked_options(f"model {name}", known, options, "model.options.", models_with)
        return {**tree, "options": values, "norm": default.default if default and norm is None else norm}


class TopologyConfig(Section):
    """A named topology with its options (`clusters` is one of them), or `edges`: a file, or pairs."""

    name: str = "ring"
    clients: Count = 16
    clusters: Count | None = None
    options: Tree = {}
    edges: str | list[tuple[int, int]] | None = None

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


class SlowdownConfig(Section):
    """A client computes `factor` times as slowly between two times (always, if none are given)."""

    client: Annotated[int, Field(ge=0)]
    factor: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    start: Seconds = 0.0
    end: Annotated[float, Field(gt=0)] | None = None


class LinkConfig(Section):
    """An edge with its own latency and bandwidth."""

    edge: tuple[int, int]
    latency: Seconds
    bandwidth: Annotated[float, Field(gt=0)]


class CostsConfig(Section):
    """Seconds and bytes per second of virtual time; see `swiftfl.costs.Costs`."""

    compute: Seconds = Costs.compute
    send: Seconds = Costs.send
    mix: Seconds = Costs.mix
    latency: Seconds = Costs.latency
    bandwidth: Annotated[float, Field(gt=0)] = Costs.bandwidth
    slowdowns: list[SlowdownConfig] = []
    spread: Seconds = Costs.spread
    trace: dict[int, list[float]] = {}
    links: list[LinkConfig] = []
    jitter: Seconds = Costs.jitter
    loss: Annotated[float, Field(ge=0, lt=1)] = Costs.loss
    message_bytes: Count | None = Costs.message_bytes
    shared_bandwidth: Annotated[float, Field(gt=0)] | None = Costs.shared_bandwidth


class LiveConfig(Section):
    """Of runs with real processes: saves, record, restarts, and how often the parent evaluates.

    `gradient_seconds` replaces every gradient by a sleep: an accelerator that is not there. `transport` is
    how models travel between the processes of engine local.
    """

    save_seconds: Annotated[float, Field(gt=0)] | None = LiveOptions.save_seconds
    save_steps: Count | None = LiveOptions.save_steps
    record: bool = LiveOptions.record
    restart_lost: bool = LiveOptions.restart_lost
    evaluate_seconds: Annotated[float, Field(gt=0)] = 2.0
    gradient_seconds: Seconds | None = None
    transport: str = "shared_memory"

    @field_validator("transport")
    @classmethod
    def _transport_exists(cls, name: str) -> str:
        return TRANSPORTS[name].name


class EngineConfig(Section):
    name: Literal["virtual", "sampled", "local", "mpi"] = "virtual"
    barrier: Literal["neighbours", "global"] = "neighbours"
    ccs: Literal["central", "distributed"] = "central"
    epochs: Count | None = None
    iterations: Count | None = None
    costs: CostsConfig = CostsConfig()
    network: NetworkConfig = NetworkConfig()
    live: LiveConfig = LiveConfig()
    codec: str = "identity"
    codec_options: Tree = {}

    @model_validator(mode="before")
    @classmethod
    def _fill_codec(cls, tree: Any) -> Any:
        name, _ = named(tree, "codec", "identity")
        given = tree.get("codec_options", {}) if name is not None else None
        if name is None or not isinstance(given, Mapping):
            return tree
        known = options_of(CODECS[name])
        values = checked_options(f"codec {name}", known, given, "engine.codec_options.")
        return {**tree, "codec_options": values}

    @property
    def real(self) -> bool:
        """Whether clients are processes and time is real."""
        return self.name in ("local", "mpi")

    @model_validator(mode="after")
    def _needs_an_end(self) -> EngineConfig:
        if self.epochs is None and self.iterations is None:
            raise ValueError("a run needs an end: give epochs or iterations")
        return self


class EvaluationConfig(Section):
    """How often models are evaluated, of how many clients the mean loss is taken, and by which metrics."""

    every_epochs: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    clients: Annotated[int, Field(ge=0)] = 64
    metrics: tuple[str, ...] = ()

    @field_validator("metrics")
    @classmethod
    def _exist(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            METRICS[name]  # an unknown one is refused with the names that there are
        return names


class Config(Section):
    imports: tuple[str, ...] = ()
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    topology: TopologyConfig = TopologyConfig()
    influence: Literal["uniform", "data", "measured"] | list[float] = "uniform"
    objective: Literal["as_run", "as_given"] = "as_run"
    algorithm: AlgorithmConfig = AlgorithmConfig()
    engine: EngineConfig = EngineConfig(epochs=10)
    evaluation: EvaluationConfig = EvaluationConfig()
    seed: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="before")
    @classmethod
    def _import_first(cls, tree: Any) -> Any:
        """What the modules register is known when the names of the sections are looked up."""
        names = tree.get("imports") if isinstance(tree, Mapping) else None
        if isinstance(names, list | tuple) and all(isinstance(name, str) for name in names):
            import_modules(names)
        return tree

    @model_validator(mode="after")
    def _measuring_needs_time(self) -> Config:
        if self.objective == "as_given" and self.influence != "measured":
            raise ValueError(
                "objective as_given needs influence measured: it scales steps by given over true"
            )
        if self.influence == "measured" and self.engine.name == "sampled":
            raise ValueError("measured influence needs time: the virtual engine or a live one")
        self.engine.network.check_engine(self.engine.name)
        if self.engine.name == "local" and self.model.device != "cpu":
            raise ValueError("the clients of engine local are forked, and compute on the cpu")
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
        tree = self.model_dump()
        if isinstance(changes.get("imports"), list | tuple):
            import_modules(changes["imports"])
        leave_options_behind(tree, changes)
        for key, value in changes.items():
            replace(tree, key, value)
        return parse(tree)


def parse(tree: Tree) -> Config:
    """A configuration from plain values; what is wrong is reported on one line."""
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise _reported(error) from None


def _reported(error: ValidationError) -> UserError:
    # Where a value may have several types, there is an error for each: the one that went furthest.
    told = max(error.errors(), key=lambda e: len(e["loc"]))
    cause = told.get("ctx", {}).get("error")
    if isinstance(cause, UserError):
        return cause
    # pydantic names the type too in such cases, as `literal['a','b']`.
    named = [str(part) for part in told["loc"] if not str(part).endswith("]")]
    if not named:
        return UserError(told["msg"].removeprefix("Value error, "))
    key = ".".join(named)
    if told["type"] == "extra_forbidden":
        return no_such_setting(key, *_known(named[:-1]))
    return SettingError(key, requirement(told))


def _known(path: list[str]) -> tuple[list[str], str]:
    """The settings of the section at this path, and what to call it."""
    section: type[BaseModel] = Config
    for part in path:
        inner = section.model_fields[part].annotation if part in section.model_fields else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            break  # a list of small sections: its own names are in the documentation
        section = inner
    return list(section.model_fields), ".".join(path) or "a configuration"
