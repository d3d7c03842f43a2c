"""The full, typed configuration of a run: what a recipe returns and what a run folder records."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from swiftfl.errors import UserError

AlgorithmName = Literal[
    "swift", "dsgd", "pasgd", "ldsgd", "adpsgd", "matcha", "gossip", "allreduce", "fedavg"
]
WeightsName = Literal["ccs", "ccs_by_rate", "metropolis", "fastest"]
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


class ModelConfig(Section):
    name: str = "mlp"
    norm: Literal["batch", "group"] | None = None
    device: str = "cpu"
    batching: Literal["auto", "on", "off"] = "auto"


class TopologyConfig(Section):
    name: str = "ring"
    clients: Count = 16
    clusters: Count | None = None
    options: dict[str, Any] = {}
    edges: str | None = None


class StepSizeConfig(Section):
    """`initial`, multiplied by `rate` at the epochs `at`, or from `start` on every `period` epochs."""

    initial: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.1
    rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    at: tuple[int, ...] = ()
    start: int | None = None
    period: Count = 1


class AlgorithmConfig(Section):
    """What the clients do.

    `communication_set` is the s of SWIFT's C_s. `i1` are the local steps between averagings of PA-SGD,
    LD-SGD and FedAvg, `i2` the averaging ones of LD-SGD; `budget` is MATCHA's.
    """

    name: AlgorithmName = "swift"
    communication_set: Annotated[int, Field(ge=0)] = 0
    i1: Annotated[int, Field(ge=0)] = 1
    i2: Count = 1
    budget: Annotated[float, Field(gt=0, le=1)] = 0.5
    weights: WeightsName | None = None
    step_size: StepSizeConfig = StepSizeConfig()
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    nesterov: bool = False


class CostsConfig(Section):
    """Seconds and bytes per second of virtual time; see `swiftfl.costs.Costs`."""

    compute: Seconds = 0.010
    send: Seconds = 0.0001
    mix: Seconds = 0.0001
    latency: Seconds = 0.0005
    bandwidth: Annotated[float, Field(gt=0)] = 1e9
    slowdown: dict[int, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = {}


class EngineConfig(Section):
    name: Literal["virtual", "sampled"] = "virtual"
    barrier: Literal["neighbours", "global"] = "neighbours"
    epochs: Count | None = None
    iterations: Count | None = None
    costs: CostsConfig = CostsConfig()

    @model_validator(mode="after")
    def _needs_an_end(self) -> EngineConfig:
        if self.epochs is None and self.iterations is None:
            raise ValueError("a run needs an end: give epochs or iterations")
        return self


class EvaluationConfig(Section):
    """How often the models are evaluated, and of how many clients the mean loss is taken."""

    every_epochs: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    clients: Annotated[int, Field(ge=0)] = 64


class Config(Section):
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    topology: TopologyConfig = TopologyConfig()
    influence: Literal["uniform", "data"] | list[float] = "uniform"
    algorithm: AlgorithmConfig = AlgorithmConfig()
    engine: EngineConfig = EngineConfig(epochs=10)
    evaluation: EvaluationConfig = EvaluationConfig()
    seed: Annotated[int, Field(ge=0)] = 0

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
        where = ".".join(str(part) for part in first["loc"]) or "configuration"
        given = "" if isinstance(first["input"], dict | BaseModel) else f" (given: {first['input']!r})"
        message = first["msg"].removeprefix("Value error, ")
        raise UserError(f"{where}: {message}{given}") from None
