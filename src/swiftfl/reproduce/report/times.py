"""Tables of seconds per epoch: printed in the paper, predicted, and measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from swiftfl.report.numbers import Cell, change, difference, spread
from swiftfl.report.table import GROUP, Table
from swiftfl.reproduce.hardware import CALIBRATED
from swiftfl.reproduce.printed import printed
from swiftfl.reproduce.report.recorded import RecordedExperiment, Run, number

REFERENCE = "dsgd_c0"
"""The method that the others are compared with."""
UNSLOWED = "1x"
_TIME_PARTS = ("compute", "communication", "waiting")
_KEYS = tuple(f"{part}_seconds_per_epoch" for part in _TIME_PARTS)
_UNITS = (("s", 1.0), ("ms", 1e3), ("µs", 1e6))
_MOVED = ("communication", "waiting", "epoch")
CONVENTION = (
    "Seconds per epoch, mean over clients. As in the paper, epoch = compute + communication, and "
    "communication excludes waiting for others. Here: virtual time on the simulated hardware. Errors are "
    "relative to what the paper printed; cells that the calibration fixes have none."
)
IS_CALIBRATED = "calibrated"


@dataclass(frozen=True)
class EpochTimes:
    """Seconds per epoch of one case. `total` is all time; None is what was neither printed nor predicted."""

    epoch: float | None = None
    communication: float | None = None
    waiting: float | None = None
    total: float | None = None

    @property
    def compute(self) -> float | None:
        return difference(self.epoch, self.communication)

    @property
    def overhead(self) -> float | None:
        """All that is not compute: communication and waiting."""
        if self.communication is None or self.waiting is None:
            return None
        return self.communication + self.waiting


def printed_row(experiment: str, group: str, method: str) -> dict[str, Any]:
    """The paper's numbers of one case; empty where it printed none.

    >>> printed_row("slowdown", "4x", "dsgd_c0")["epoch"], printed_row("slowdown", "16x", "dsgd_c0")
    (1.666, {})
    """
    tables = [table for name, table in printed().items() if name.startswith(f"{experiment}_")]
    if not tables or (experiment == "noniid" and not _is_degree(group, tables[0]["degrees"])):
        return {}
    rows = tables[0] if experiment in ("baseline", "noniid") else tables[0].get(group, {})
    return dict(rows.get(method, {}))


def _is_degree(group: str, degrees: list[float]) -> bool:
    """One row of the paper stands for all its degrees of non-IIDness; groups are named in percent."""
    return group.isdigit() and int(group) / 100 in degrees


def in_paper(experiment: str, group: str, method: str) -> EpochTimes:
    row = printed_row(experiment, group, method)
    return EpochTimes(row.get("epoch"), row.get("comm"), None, row.get("total"))


def here(recorded: RecordedExperiment, group: str, method: str) -> EpochTimes:
    parts = recorded.times(group, method)
    if not parts:
        return EpochTimes()
    epoch = parts["compute"] + parts["communication"]
    return EpochTimes(epoch, parts["communication"], parts["waiting"], epoch + parts["waiting"])


def calibrated(recorded: RecordedExperiment, group: str, method: str, what: str) -> bool:
    """Whether the printed number ("epoch" or "comm") was used to calibrate the hardware of the prediction."""
    papers = recorded.about.get("hardware", "paper") == "paper"
    return papers and what in CALIBRATED.get((recorded.name, group, method), ())


def prediction_error(recorded: RecordedExperiment, group: str, method: str, what: str) -> float | None:
    """In percent of the printed number; None where there is none, or where it was used to calibrate."""
    if calibrated(recorded, group, method, what):
        return None
    theirs, ours = in_paper(recorded.name, group, method), here(recorded, group, method)
    if what == "comm":
        return change(ours.communication, theirs.communication)
    return change(ours.epoch, theirs.epoch)


def _error_cell(recorded: RecordedExperiment, group: str, method: str, what: str) -> Cell:
    if calibrated(recorded, group, method, what):
        return IS_CALIBRATED
    return prediction_error(recorded, group, method, what)


def change_is_calibrated(recorded: RecordedExperiment, group: str, method: str, what: str) -> bool:
    """Whether a change against D-SGD says nothing new, because both its numbers are calibrated."""
    return all(calibrated(recorded, group, m, what) for m in (method, REFERENCE))


def predicted_change(recorded: RecordedExperiment, group: str, method: str, what: str) -> Cell:
    """Against D-SGD of the same group, in percent."""
    ours, theirs = here(recorded, group, method), here(recorded, group, REFERENCE)
    by_what = {"comm": (ours.communication, theirs.communication), "epoch": (ours.epoch, theirs.epoch)}
    found = change(*by_what[what])
    fixed = found is not None and change_is_calibrated(recorded, group, method, what)
    return IS_CALIBRATED if fixed else found


def change_in_paper(experiment: str, group: str, method: str, what: str) -> float | None:
    """Against D-SGD, as printed; where the paper printed only seconds, from these."""
    row = printed_row(experiment, group, method)
    said = row.get(f"{what}_change_pct")
    if said is not None or method == REFERENCE:
        return said
    return change(row.get(what), printed_row(experiment, group, REFERENCE).get(what))


def merged(recorded: RecordedExperiment) -> dict[str, str]:
    """The predicted groups with their labels; those that have the same numbers, here and in the paper,
    are one, named by the first: data that lie differently take no more time."""
    alike: dict[str, list[str]] = {}
    for group in recorded.groups:
        if recorded.predicted.get(group):
            paper = [printed_row(recorded.name, group, method) for method in recorded.methods]
            alike.setdefault(repr((recorded.predicted[group], paper)), []).append(group)
    return {groups[0]: ", ".join(recorded.groups[g] for g in groups) for groups in alike.values()}


def time_tables(recorded: RecordedExperiment) -> list[Table]:
    """All tables of times; none if nothing was predicted."""
    cases = [
        (group, method)
        for group in merged(recorded)
        for method in recorded.methods
        if recorded.times(group, method)
    ]
    if not cases:
        return []
    tables = [_seconds(recorded, cases), _changes(recorded, cases), _parts(recorded, cases)]
    if UNSLOWED in recorded.predicted:
        tables.append(_ratios(recorded, cases))
    return tables


def _labels(recorded: RecordedExperiment, group: str, method: str) -> list[Cell]:
    return [merged(recorded)[group], recorded.methods[method]]


def _seconds(recorded: RecordedExperiment, cases: list[tuple[str, str]]) -> Table:
    rows = []
    for group, method in cases:
        a, b = in_paper(recorded.name, group, method), here(recorded, group, method)
        rows.append(
            [
                *_labels(recorded, group, method),
                *(a.epoch, b.epoch, _error_cell(recorded, group, method, "epoch")),
                *(a.communication, b.communication, _error_cell(recorded, group, method, "comm")),
            ]
        )
    columns = (
        GROUP, "method", "epoch, paper (s)", "epoch, here (s)", "epoch, error (%)",
        "communication, paper (s)", "communication, here (s)", "communication, error (%)",
    )  # fmt: skip
    return Table(f"{recorded.name}-times", f"{recorded.title}: times", columns, rows, CONVENTION)


def _changes(recorded: RecordedExperiment, cases: list[tuple[str, str]]) -> Table:
    rows = []
    for group, method in cases:
        if method == REFERENCE:
            continue
        b, reference = here(recorded, group, method), here(recorded, group, REFERENCE)
        rows.append(
            [
                *_labels(recorded, group, method),
                change_in_paper(recorded.name, group, method, "epoch"),
                predicted_change(recorded, group, method, "epoch"),
                change_in_paper(recorded.name, group, method, "comm"),
                predicted_change(recorded, group, method, "comm"),
                change(b.overhead, reference.overhead),
                change(b.total, reference.total),
            ]
        )
    columns = (
        GROUP, "method", "epoch change, paper (%)", "epoch change, here (%)",
        "communication change, paper (%)", "communication change, here (%)",
        "communication + waiting change, here (%)", "total change, here (%)",
    )  # fmt: skip
    title = f"{recorded.title}: change against D-SGD"
    return Table(f"{recorded.name}-changes", title, columns, rows, "Against D-SGD of the same group.")


def _parts(recorded: RecordedExperiment, cases: list[tuple[str, str]]) -> Table:
    rows = []
    for group, method in cases:
        b = here(recorded, group, method)
        rows.append(
            [
                *_labels(recorded, group, method),
                b.compute,
                b.communication,
                b.waiting,
                b.overhead,
                b.total,
            ]
        )
    columns = (
        GROUP, "method", "compute (s)", "communication (s)", "waiting (s)",
        "communication + waiting (s)", "total (s)",
    )  # fmt: skip
    note = "Predicted seconds per epoch, mean over clients; communication without and with waiting."
    return Table(f"{recorded.name}-parts", f"{recorded.title}: where the time goes", columns, rows, note)


def _ratios(recorded: RecordedExperiment, cases: list[tuple[str, str]]) -> Table:
    """The paper's total times cannot be compared in seconds, only with those without a slowdown."""
    rows: list[list[Cell]] = []
    for group, method in cases:
        if group != UNSLOWED:
            paper = _ratio(in_paper(recorded.name, group, method), in_paper(recorded.name, UNSLOWED, method))
            ours = _ratio(here(recorded, group, method), here(recorded, UNSLOWED, method))
            if ours is not None:
                rows.append([*_labels(recorded, group, method), paper, ours, difference(ours, paper)])
    columns = (GROUP, "method", "total ÷ 1x, paper", "total ÷ 1x, here", "total ÷ 1x, difference")
    note = (
        "Total time per epoch over that of the same method without a slowdown. The paper's total is "
        "2.1 to 2.6 times its epoch even there: it is the wall time of an epoch, with loading of batches, "
        "recording, and waiting before the barrier, which its other two columns leave out. So only ratios "
        "can be compared."
    )
    return Table(f"{recorded.name}-ratios", f"{recorded.title}: total time against 1x", columns, rows, note)


def _ratio(slowed: EpochTimes, unslowed: EpochTimes) -> float | None:
    if slowed.total is None or not unslowed.total:
        return None
    return slowed.total / unslowed.total


# --- measured times ----------------------------------------------------------------------------------


def runs_table(recorded: RecordedExperiment) -> Table | None:
    """Seconds per epoch of every case that was run, means over clients, then over seeds."""
    rows: list[list[Cell]] = []
    for group, label in recorded.groups.items():
        for method, name in recorded.methods.items():
            runs = recorded.of(group, method)
            if runs:
                rows.append([label, name, len(runs), *_spent(runs)])
    if not rows:
        return None
    columns = (GROUP, "method", "seeds", *(f"{part}, seconds" for part in (*_TIME_PARTS, "all three")))
    engine = recorded.about.get("engine", "virtual")
    note = (
        f"Seconds per epoch of the runs that the losses are of (engine {engine}): each client's own epochs, "
        "mean over clients, then mean ± standard deviation over seeds. They have as many steps per epoch as "
        "their own data, which at scale smoke are fewer than the paper's."
    )
    return Table(f"{recorded.name}-runs", f"{recorded.title}: times of the runs", columns, rows, note)


def _spent(runs: list[Run]) -> list[Cell]:
    known = [[float(run.summary[key]) for key in _KEYS] for run in runs if _measured(run)]
    columns = [[row[k] for row in known] for k in range(len(_KEYS))]
    return [spread(column) for column in (*columns, [sum(row) for row in known])]


def _measured(run: Run) -> bool:
    return all(number(run.summary.get(key)) for key in _KEYS)


def live_times(recorded: RecordedExperiment, method: str) -> EpochTimes:
    """What was measured on this machine."""
    parts = recorded.live.get("methods", {}).get(method)
    if not parts:
        return EpochTimes()
    epoch = parts["compute"] + parts["communication"]
    return EpochTimes(epoch, parts["communication"], parts["waiting"], epoch + parts["waiting"])


def live_table(recorded: RecordedExperiment) -> Table | None:
    """Real processes, beside the prediction and the paper: communication against D-SGD's, with and without
    waiting."""
    live, group = recorded.live, next(iter(recorded.groups), "")
    rows: list[list[Cell]] = []
    for method, label in recorded.methods.items():
        measured, predicted = live_times(recorded, method), here(recorded, group, method)
        if measured.total is not None:
            reference = live_times(recorded, REFERENCE), here(recorded, group, REFERENCE)
            other = method != REFERENCE
            rows.append(
                [
                    label, measured.compute, measured.communication, measured.waiting,
                    change(measured.communication, reference[0].communication) if other else None,
                    predicted_change(recorded, group, method, "comm") if other else None,
                    change_in_paper(recorded.name, group, method, "comm"),
                    change(measured.overhead, reference[0].overhead) if other else None,
                    change(predicted.overhead, reference[1].overhead) if other else None,
                ]
            )  # fmt: skip
    if not rows:
        return None
    columns = (
        "method", "compute (s)", "communication (s)", "waiting (s)",
        "communication change, measured (%)", "communication change, predicted (%)",
        "communication change, paper (%)", "communication + waiting change, measured (%)",
        "communication + waiting change, predicted (%)",
    )  # fmt: skip
    note = (
        f"Measured on this machine: {live['clients']} processes that share memory, "
        f"{live['steps_per_epoch']} steps an epoch, each gradient emulated by {live['gradient_seconds']:g} "
        "s of sleep. Changes are against D-SGD. The paper's communication excludes waiting: like for like "
        "with it is the change without waiting; what a user waits for is the change with it."
    )
    return Table(f"{recorded.name}-live", "Measured with real processes", columns, rows, note)


# --- what the predictions depend on ---------------------------------------------------------------------


def sensitivity_table(recorded: RecordedExperiment) -> Table | None:
    rows: list[list[Cell]] = []
    for constant, moved in recorded.sensitivity.items():
        for method, label in recorded.methods.items():
            if method in moved:
                cells = [_range(moved[method].get(quantity)) for quantity in _MOVED]
                rows.append([constant, label, _moved_over(constant, moved["values"]), *cells])
    if not rows:
        return None
    columns = (GROUP, "method", "moved over", *(f"{name} (s)" for name in _MOVED))
    note = (
        "Predicted seconds per epoch at the smallest and the largest value of what the calibration leaves "
        "free. For latency and send_share (sending's part of what SWIFT pays per neighbour) the rest is "
        "calibrated again, so that D-SGD and SWIFT C_0 keep their rows; spread is the variation of compute "
        "times, which the paper does not report."
    )
    return Table(
        f"{recorded.name}-sensitivity",
        "Predictions at the ends of each constant's range",
        columns,
        rows,
        note,
    )


def _moved_over(constant: str, values: list[float]) -> str:
    unit, scale = unit_of(constant, values)
    return f"{scale * values[0]:.3g} to {scale * values[-1]:.3g} {unit}".strip()


def unit_of(constant: str, values: list[float]) -> tuple[str, float]:
    """The unit of a constant and how many of it are one second; it makes numbers short.

    >>> unit_of("latency", [2.5e-5, 7.5e-5]), unit_of("spread", [0.0, 0.3])
    (('µs', 1000000.0), ('', 1.0))
    """
    if constant != "latency":
        return "", 1.0
    least = min((value for value in values if value > 0), default=1.0)
    return next((found for found in _UNITS if least * found[1] >= 1), _UNITS[-1])


def _range(values: list[float] | None) -> str | None:
    if not values:
        return None
    return f"{values[0]:.3f} to {values[-1]:.3f}"
