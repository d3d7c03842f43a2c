"""How the runs themselves spent their time: virtual seconds, or real ones with a live engine."""

from __future__ import annotations

from swiftfl.report.numbers import Cell, spread
from swiftfl.report.table import GROUP, Table
from swiftfl.reproduce.report.recorded import RecordedExperiment, Run, number

_PARTS = ("compute", "communication", "waiting")
_KEYS = tuple(f"{part}_seconds_per_epoch" for part in _PARTS)


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
    columns = (GROUP, "method", "seeds", *(f"{part}, seconds" for part in (*_PARTS, "all three")))
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
