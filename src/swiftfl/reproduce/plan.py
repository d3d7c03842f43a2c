"""What the experiments of the paper share: methods, scales, and the configuration of a case.

An experiment is a list of cases, one per group (a column of the paper's table) and method (a row). Scales:

* `paper`: CIFAR-10 with the usual augmentation, the authors' thin networks, their epochs and schedules.
* `small`: the same data without augmentation and a small CNN that needs no GPU. It has no batch
  norm, so its step size is its own (`SMALL_STEP_SIZE`); the schedule is the paper's, shrunk in
  proportion to the epochs.
* `smoke`: the digits of the package and a small MLP, to see that every part works.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from swiftfl.errors import UserError
from swiftfl.experiment.algorithm_config import AlgorithmConfig
from swiftfl.experiment.config import Config, EvaluationConfig, TopologyConfig
from swiftfl.experiment.costs_config import CostsConfig
from swiftfl.experiment.engine_config import EngineConfig
from swiftfl.experiment.learning_config import DataConfig, ModelConfig
from swiftfl.reproduce.hardware import profile
from swiftfl.reproduce.printed import hyperparameters, step_size

SCALES = ("smoke", "small", "paper")
METHODS = {
    "swift_c0": "SWIFT C_0",
    "swift_c1": "SWIFT C_1",
    "dsgd_c0": "D-SGD",
    "pasgd_c1": "PA-SGD",
    "ldsgd_c1": "LD-SGD",
    "adpsgd_c0": "AD-PSGD",
}
"""Method keys and labels, in the order of tables and legends."""


Fidelity: TypeAlias = Literal["paper", "authors"]
"""Whether algorithms are as the paper prints them, or as the authors' code runs them."""


@dataclass(frozen=True)
class ReproductionOptions:
    """What a user may choose besides the scale; None stands for the recipe's own value.

    `costs` are those of measured hardware; without them the profile `paper` is used.
    """

    engine: str = "virtual"
    device: str = "cpu"
    baseline_weights: str = "metropolis"
    fidelity: Fidelity = "paper"
    data: str | None = None
    model: str | None = None
    epochs: int | None = None
    costs: CostsConfig | None = None


@dataclass(frozen=True)
class Case:
    """One method in one group, with seed 0. A case that is not trained is only predicted (its times)."""

    group: str
    method: str
    config: Config
    trained: bool = True


@dataclass(frozen=True)
class Experiment:
    """Groups and methods by key, each with its label for readers, and the cases."""

    name: str
    title: str
    groups: dict[str, str]
    methods: dict[str, str]
    cases: tuple[Case, ...]

    def case(self, group: str, method: str) -> Case:
        return next(c for c in self.cases if (c.group, c.method) == (group, method))


def check_scale(scale: str) -> None:
    if scale not in SCALES:
        raise UserError(f"there is no scale {scale!r}: choose from {', '.join(SCALES)}")


# --- the configuration of a case ------------------------------------------------------------------------

SAMPLES = {"cifar10": 50_000, "digits": 1_437}
SMALL_STEP_SIZE = 0.05
SMOKE_STEP_SIZE = 0.1
ALGORITHMS: dict[str, dict[str, Any]] = {
    "swift_c0": {"name": "swift", "communication_set": 0},
    "swift_c1": {"name": "swift", "communication_set": 1},
    "dsgd_c0": {"name": "dsgd"},
    "pasgd_c1": {"name": "pasgd", "i1": 1},
    "ldsgd_c1": {"name": "ldsgd", "i1": 1, "i2": 2},
    "adpsgd_c0": {"name": "adpsgd", "averaging": "background"},
}
"""The methods, with the constants that the authors' scripts have; AD-PSGD as its own paper runs it."""
SYNCHRONOUS = ("dsgd_c0", "pasgd_c1", "ldsgd_c1")
EVALUATED_CLIENTS = 4
"""Of how many clients the mean of their own losses is taken, beside the loss of the consensus model."""


def as_run_by_authors(method: str) -> dict[str, Any]:
    """What the authors' code does otherwise than the paper prints: options of the algorithm.

    >>> as_run_by_authors("dsgd_c0")
    {'order': 'average_first'}
    """
    if method in SYNCHRONOUS:
        return {"order": "average_first"}
    return {"broadcast": "after", "decay_at": "average"} if method.startswith("swift") else {}


@dataclass(frozen=True)
class ExperimentSetting:
    """One experiment at one scale; `epochs` are those of the scales below `paper`."""

    name: str
    scale: str
    options: ReproductionOptions
    epochs: dict[str, int]

    def __post_init__(self) -> None:
        check_scale(self.scale)

    @property
    def at_paper(self) -> bool:
        return self.scale == "paper"

    def config(self, topology: TopologyConfig, method: str, partition: str = "iid") -> Config:
        """The full configuration of a case that has nothing special."""
        plain = Config(
            data=self._data(partition),
            model=self._model(),
            topology=topology,
            algorithm=self._algorithm(method),
            engine=EngineConfig(epochs=self.length, costs=self._costs(), barrier=self._barrier(method)),
            evaluation=EvaluationConfig(clients=EVALUATED_CLIENTS),
        )
        # What users choose comes last: `with_changes` reports a mistake on one line.
        return plain.with_changes({"engine.name": self.options.engine, "model.device": self.options.device})

    @property
    def length(self) -> int:
        """Of a run, in epochs."""
        if self.options.epochs is not None:
            return self.options.epochs
        return int(hyperparameters(self.name)["epochs"]) if self.at_paper else self.epochs[self.scale]

    def _data(self, partition: str) -> DataConfig:
        if self.scale == "smoke":
            if self.options.data is not None:
                raise UserError("--data needs --scale small or paper: smoke has the digits of the package")
            return DataConfig(dataset="digits", partition=partition, batch_size=16)
        return DataConfig(
            dataset="cifar10",
            folder=self.options.data,
            partition=partition,
            batch_size=hyperparameters(self.name)["batch"],
            augment=self.at_paper,
        )

    def _model(self) -> ModelConfig:
        """The authors' code averages parameters only; models without batch norm have no buffers."""
        chosen = self._chosen_model()
        own = self.options.fidelity == "authors" and chosen.norm == "batch"
        return chosen.model_copy(update={"buffers": "own"}) if own else chosen

    def _chosen_model(self) -> ModelConfig:
        if self.options.model is not None:
            if not self.at_paper:
                raise UserError("--model needs --scale paper: the smaller scales have their own model")
            return ModelConfig(name=self.options.model)
        if self.at_paper:
            return ModelConfig(name=f"thin_{hyperparameters(self.name)['model']}")
        if self.scale == "small":
            return ModelConfig(name="cnn", options={"width": 8})
        return ModelConfig(name="mlp", options={"hidden": 32})

    def _algorithm(self, method: str) -> AlgorithmConfig:
        h = hyperparameters(self.name)
        own = {"smoke": SMOKE_STEP_SIZE, "small": SMALL_STEP_SIZE, "paper": None}[self.scale]
        weights = None if method.startswith("swift") else self.options.baseline_weights
        schedule = step_size(self.name, own, self.length).model_dump()
        more: dict[str, Any] = {}
        if self.options.fidelity == "authors":
            schedule["epoch_of_decay"] = "authors"
            more = as_run_by_authors(method)
        return AlgorithmConfig.model_validate(
            {
                **ALGORITHMS[method],
                **more,
                "weights": weights,
                "step_size": schedule,
                "momentum": h["momentum"],
                "weight_decay": h["weight_decay"],
            }
        )

    def _barrier(self, method: str) -> Literal["neighbours", "global"]:
        """Synchronous methods wait for everybody, as on the paper's hardware (whose costs of an exchange are
        those of everybody together) and in the authors' code."""
        everybody = self.options.costs is None or self.options.fidelity == "authors"
        return "global" if everybody and method in SYNCHRONOUS else "neighbours"

    def _costs(self) -> CostsConfig:
        """The paper's hardware with the paper's network, whatever is trained; or what was measured."""
        return self.options.costs or profile("paper", hyperparameters(self.name)["model"])


def planned_steps(config: Config) -> int:
    """Client steps of all clients together until a run ends."""
    if config.engine.iterations is not None:
        return config.engine.iterations
    n, samples = config.topology.clients, SAMPLES[config.data.dataset]
    sizes = [samples // n + (i < samples % n) for i in range(n)]
    return (config.engine.epochs or 0) * sum(-(-size // config.data.batch_size) for size in sizes)
