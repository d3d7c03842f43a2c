"""What was learnt: final losses, and how long it takes until the consensus model reaches a loss."""

from __future__ import annotations

from dataclasses import dataclass

from swiftfl.report.numbers import Cell, spread
from swiftfl.report.table import GROUP, Table
from swiftfl.reproduce.laboratory.plan import time_to_loss
from swiftfl.reproduce.report.recorded import RecordedExperiment, Run, number
from swiftfl.reproduce.report.times import REFERENCE

NOT_REACHED = "not reached"
NOTHING_LEARNT = "D-SGD learnt nothing"
DIVERGED = "diverged"


@dataclass(frozen=True)
class Reached:
    """How long a method took to the final test loss of D-SGD of the same group and seed."""

    seconds: list[float]
    ratios: list[float]
    seeds: int
    void: int = 0
    """Seeds with which D-SGD ended no lower than it began: there is nothing to reach."""

    def cell(self, values: list[float], digits: int) -> Cell:
        if not self.seeds:
            return NOTHING_LEARNT if self.void else None
        if not values:
            return NOT_REACHED
        some = "" if len(values) == self.seeds else f" ({len(values)} of {self.seeds} seeds)"
        return f"{spread(values, digits)}{some}"


def reached(recorded: RecordedExperiment, group: str, method: str) -> Reached:
    """Over the seeds of which D-SGD's run is there too; a run with one evaluation has no curve to compare."""
    references = {run.seed: run for run in recorded.of(group, REFERENCE) if run.has_curve}
    runs = [run for run in recorded.of(group, method) if run.has_curve]
    pairs = [(run, references[run.seed]) for run in runs if run.seed in references]
    void = [reference for _, reference in pairs if reference.rows[-1]["loss"] >= reference.rows[0]["loss"]]
    pairs = [(run, reference) for run, reference in pairs if reference not in void]
    seconds, ratios = [], []
    for run, reference in pairs:
        target = reference.rows[-1]["loss"]
        took, its = time_to_loss(run.rows, target), time_to_loss(reference.rows, target)
        if took is not None:
            seconds.append(took)
            if its:
                ratios.append(took / its)
    return Reached(seconds, ratios, len(pairs), len(void))


def ratios_to_common_loss(recorded: RecordedExperiment, group: str, method: str) -> list[float]:
    """Per seed, the time until a method has the lowest test loss that both it and D-SGD come to, over D-SGD's
    time; of seeds with which both come below the loss that they begin with."""
    references = {run.seed: run for run in recorded.of(group, REFERENCE) if run.has_curve}
    found = []
    for run in recorded.of(group, method):
        reference = references.get(run.seed)
        if reference is None or not run.has_curve:
            continue
        target = max(min(row["loss"] for row in rows) for rows in (run.rows, reference.rows))
        took, its = time_to_loss(run.rows, target), time_to_loss(reference.rows, target)
        if took and its:
            found.append(took / its)
    return found


def final(runs: list[Run], key: str) -> list[float]:
    """The last value of each run, where there is one."""
    return [run.rows[-1][key] for run in runs if number(run.rows[-1].get(key))]


def learning_table(recorded: RecordedExperiment) -> Table | None:
    """Final losses and accuracy, and the time to D-SGD's final loss."""
    rows: list[list[Cell]] = []
    for group, label in recorded.groups.items():
        for method, name in recorded.methods.items():
            runs, diverged = recorded.of(group, method), recorded.diverged(group, method)
            if runs or diverged:
                learnt = _learnt(recorded, group, method, runs) if runs else [DIVERGED, *[None] * 5]
                all_runs = len(runs) + len(diverged)
                some = f"{len(runs)} of {all_runs}, {len(diverged)} diverged"
                rows.append([label, name, some if diverged else all_runs, *learnt])
    if not rows:
        return None
    columns = (
        GROUP, "method", "seeds", "test loss", "mean client test loss", "accuracy (%)", "train loss",
        f"{recorded.seconds} to D-SGD's final loss", "÷ D-SGD's time",
    )  # fmt: skip
    note = (
        "At the last evaluation, of the consensus model (train loss: mean of the last batches; mean client "
        "test loss: of the models that some clients have, which is what the authors plot), mean ± "
        "standard deviation over the seeds that did not diverge. The time is that until the consensus "
        "model's test loss first is at most the final one of D-SGD with the same seed, interpolated between "
        "evaluations; for D-SGD itself too, whose loss may have been as low before its end."
    )
    return Table(f"{recorded.name}-learning", f"{recorded.title}: what was learnt", columns, rows, note)


def _learnt(recorded: RecordedExperiment, group: str, method: str, runs: list[Run]) -> list[Cell]:
    reach = reached(recorded, group, method)
    return [
        spread(final(runs, "loss")),
        spread(final(runs, "mean_client_loss")),
        spread([100 * share for share in final(runs, "accuracy")], 1),
        spread(final(runs, "train_loss")),
        reach.cell(reach.seconds, 2),
        reach.cell(reach.ratios, 2),
    ]
