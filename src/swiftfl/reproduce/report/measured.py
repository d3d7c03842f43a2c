"""What an experiment of the laboratory has measured, read from its results.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from swiftfl.report.numbers import mean
from swiftfl.reproduce.laboratory.plan import STEPS, TARGET, TIME, Row, at, time_to_loss
from swiftfl.reproduce.laboratory.trials import CARRIED
from swiftfl.reproduce.report.recorded import number

REFERENCE = "dsgd"


@dataclass(frozen=True)
class MeasuredInquiry:
    """The fresh runs, by group, method, and by why their step size was chosen."""

    results: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.results["name"])

    @property
    def title(self) -> str:
        return str(self.results["title"])

    @property
    def seeds(self) -> int:
        """How many fresh ones."""
        return int(self.results["seeds"])

    @cached_property
    def methods(self) -> dict[str, str]:
        return dict(self.results["methods"])

    @cached_property
    def groups(self) -> dict[str, str]:
        return {key: str(group["label"]) for key, group in self.results["groups"].items()}

    @cached_property
    def _cells(self) -> dict[tuple[str, str], dict[str, Any]]:
        return {(cell["group"], cell["method"]): cell for cell in self.results["cells"]}

    def cell(self, group: str, method: str) -> dict[str, Any]:
        return self._cells[group, method]

    def seconds(self, group: str) -> float:
        return float(self.results["groups"][group]["seconds"])

    def target(self, group: str) -> float:
        return float(self.results["groups"][group]["target"])

    def step_size(self, group: str, method: str, choice: str) -> float:
        return float(self.cell(group, method)["step_sizes"][choice])

    def runs(self, group: str, method: str, choice: str) -> list[dict[str, Any]]:
        """One per seed, in their order."""
        key = f"{self.step_size(group, method, choice):g}"
        return [run["by_step_size"][key] for run in self.cell(group, method)["runs"]]

    def finals(self, group: str, method: str, choice: str, what: str) -> list[float]:
        """A number at the end of the budget for which the step size was chosen, one per seed."""
        budget = STEPS if choice == CARRIED else choice
        limit = self.seconds(group) if budget == TIME else float(self.results["steps"])
        return [at(run["rows"], budget, limit, what) for run in self.runs(group, method, choice)]

    def percents(self, group: str, method: str, choice: str, what: str = "accuracy") -> list[float]:
        """The same in percent, of the seeds that did not diverge."""
        return [100 * value for value in self.finals(group, method, choice, what) if number(value)]

    def differences(self, group: str, method: str, choice: str, what: str = "accuracy") -> list[float]:
        """To D-SGD with the same seed, in points."""
        pairs = zip(
            self.finals(group, method, choice, what),
            self.finals(group, REFERENCE, choice, what),
            strict=True,
        )
        return [100 * (one - other) for one, other in pairs if number(one) and number(other)]

    def times(self, group: str, method: str) -> list[float | None]:
        """The seconds to the group's loss, one per seed; None where it was not reached. The step size is
        that for the shortest time, where one was sought, or else that for equal time."""
        choice = TARGET if TARGET in self.cell(group, method)["step_sizes"] else TIME
        return [time_to_loss(run["rows"], self.target(group)) for run in self.runs(group, method, choice)]

    def mean_of(self, group: str, method: str, what: str) -> float:
        """Of what a run tells besides its curve, with the step size for equal steps."""
        return mean([run[what] for run in self.runs(group, method, STEPS)])


def finite_rows(rows: Sequence[Row]) -> list[Row]:
    """Up to the first whose loss is not finite."""
    kept: list[Row] = []
    for row in rows:
        if not number(row["loss"]):
            break
        kept.append(row)
    return kept
