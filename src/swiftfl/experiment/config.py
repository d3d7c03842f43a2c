"""The full, typed configuration of a run: what a recipe returns and what a run folder records."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from swiftfl.errors import UserError
from swiftfl.schedule import Broadcast, DecayAt, EpochOfDecay, Order

AlgorithmName = Literal[
    "swift", "dsgd", "pasgd", "ldsgd", "adpsgd", "matcha", "gossip", "allreduce", "fedavg"
]
WeightsName = Literal["ccs", "ccs_by_rate", "metropolis", "fastest", "uniform", "one_over_n"]
Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DataConfig(Section):
    dataset: str = "digits"
    folder: str | None = None
    options: dict[str, Any] = {}
    partition: str = "iid"
    batch_size: Count = 16
    augment: bool = False


class ModelConfig(Section):
    name: str = "mlp"
    options: dict[str, Count] = {}
    norm: Literal["batch", "group"] | None = None
    device: str = "cpu"
    batching: Literal["auto", "measure", "on", "off"] | dict[str, Literal["loop", "batched"]] = "auto"


class TopologyConfig(Section):
    name: str = "ring"
    clients: Count = 16
    clusters: Count | None = None
    options: dict[str, int | float] = {}
    edges: str | list[tuple[int, int]] | None = None


class StepSizeConfig(Section):
    """`initial`, multiplied by `rate` at the epochs `at`, or from `start` on every `period` epochs."""

    initial: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.1
    rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    at: tuple[int, ...] = ()
    start: int | None = None
    period: Count = 1
    epoch_of_decay: EpochOfDecay = "printed"


class AlgorithmConfig(Section):
    """What the clients do.

    `communication_set` is the s of SWIFT's C_s. `i1` are the local steps between averagings of PA-SGD,
    LD-SGD and FedAvg, `i2` the averaging ones of LD-SGD; `budget` is MATCHA's.
    """

    name: AlgorithmName = "swift"
    communication_set: Annotated[int, Field(ge=0)] = 0
    i1: Annotated[int, Field(ge=0)] = 1
    i2: Count = 2
    order: Order = "update_first"
    broadcast: Broadcast = "before"
    decay_at: DecayAt = "start"
    budget: Annotated[float, Field(gt=0, le=1)] = 0.5
    weights: WeightsName | None = None
    step_size: StepSizeConfig = StepSizeConfig()
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    nesterov: bool = False


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

    compute: Seconds = 0.010
    send: Seconds = 0.00005
    mix: Seconds = 0.00005
    latency: Seconds = 0.0002
    bandwidth: Annotated[float, Field(gt=0)] = 1e9
    slowdowns: list[SlowdownConfig] = []
    spread: Seconds = 0.0
    trace: dict[int, list[float]] = {}
    links: list[LinkConfig] = []
    jitter: Seconds = 0.0
    loss: Annotated[float, Field(ge=0, lt=1)] = 0.0
    message_bytes: Count | None = None


class ChangeConfig(Section):
    """One change of the network at a time; `edge` for edges, `seconds` for a sleep."""

    time: Seconds
    event: Literal["crash", "return", "leave", "join", "sleep", "edge_down", "edge_up"]
    client: int = -1
    edge: tuple[int, int] | None = None
    seconds: Seconds = 0.0


class NetworkConfig(Section):
    """How the network changes; rates are per second and client (or edge). See `engines.membership`."""

    changes: list[ChangeConfig] = []
    crash_rate: Seconds = 0.0
    return_rate: Seconds = 0.0
    sleep_rate: Seconds = 0.0
    sleep_seconds: Seconds = 1.0
    edge_down_rate: Seconds = 0.0
    edge_up_rate: Seconds = 0.0
    notice: Seconds = 0.1
    renewal: Seconds = 0.05
    measure_every: Count = 20


class LiveConfig(Section):
    """Of runs with real processes: saves, record, second lives, and how often the parent evaluates.

    `gradient_seconds` replaces every gradient by a sleep: an accelerator that is not there.
    """

    save_seconds: Annotated[float, Field(gt=0)] | None = 30.0
    save_steps: Count | None = None
    record: bool = True
    restart_lost: bool = False
    evaluate_seconds: Annotated[float, Field(gt=0)] = 2.0
    gradient_seconds: Seconds | None = None


class EngineConfig(Section):
    name: Literal["virtual", "sampled", "local", "mpi"] = "virtual"
    barrier: Literal["neighbours", "global"] = "neighbours"
    epochs: Count | None = None
    iterations: Count | None = None
    costs: CostsConfig = CostsConfig()
    network: NetworkConfig = NetworkConfig()
    live: LiveConfig = LiveConfig()

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


class Config(Section):
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    topology: TopologyConfig = TopologyConfig()
    influence: Literal["uniform", "data", "measured"] | list[float] = "uniform"
    objective: Literal["as_run", "as_given"] = "as_run"
    algorithm: AlgorithmConfig = AlgorithmConfig()
    engine: EngineConfig = EngineConfig(epochs=10)
    evaluation: EvaluationConfig = EvaluationConfig()
    seed: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _measuring_needs_time(self) -> Config:
        if self.objective == "as_given" and self.influence != "measured":
            raise ValueError(
                "objective as_given needs influence measured: it scales steps by given over true"
            )
        if self.influence == "measured" and self.engine.name == "sampled":
            raise ValueError("measured influence needs time: the virtual engine or a live one")
        plain = NetworkConfig(measure_every=self.engine.network.measure_every)
        if self.engine.network != plain and self.engine.name != "virtual":
            raise ValueError("planned changes of the network need the virtual engine")
        if self.engine.real and self.engine.barrier == "global":
            raise ValueError("barrier global needs the virtual engine")
        if self.engine.name == "local" and self.model.device != "cpu":
            raise ValueError("the clients of engine local are forked, and compute on the cpu")
        return self

    def with_changes(self, changes: dict[str, Any]) -> Config:
        """This configuration with some values replaced, by dotted name, and validated again.

        >>> Config().with_changes({"algorithm.name": "dsgd"}).algorithm.name
        'dsgd'
        """
        tree = self.model_dump()
        for name, value in changes.items():
            *path, last = name.split(".")
            section = tree
            for part in path:
                section = section[part]
            section[last] = value
        return parse(tree)


def parse(tree: dict[str, Any]) -> Config:
    """A configuration from plain values; what is wrong is said in one line."""
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        # Where a value may have several types, pydantic names the type too, as `literal['a','b']`.
        named = [str(part) for part in first["loc"] if not str(part).endswith("]")]
        where = ".".join(named) or "configuration"
        given = "" if isinstance(first["input"], dict | BaseModel) else f" (given: {first['input']!r})"
        message = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            message = "there is no such setting"
        raise UserError(f"{where}: {message}{given}") from None
