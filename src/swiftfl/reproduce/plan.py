"""What an experiment of the paper is: cases, one per group (a column of its table) and method (a row)."""

from __future__ import annotations

from dataclasses import dataclass

from swiftfl.errors import UserError
from swiftfl.experiment.config import Config, CostsConfig

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


@dataclass(frozen=True)
class ReproductionOptions:
    """What a user may choose besides the scale; None stands for what the recipe says.

    `costs` are those of measured hardware; without them the profile `paper` holds.
    """

    engine: str = "virtual"
    device: str = "cpu"
    baseline_weights: str = "metropolis"
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
