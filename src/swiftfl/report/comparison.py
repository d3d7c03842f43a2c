"""Recorded runs beside each other: one table, one picture."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from swiftfl.errors import UserError
from swiftfl.record import RunFolder
from swiftfl.report.numbers import Cell, spread
from swiftfl.report.table import Table

_NUMBERS = {
    "epochs": "epoch",
    "test loss": "loss",
    "mean client test loss": "mean_client_loss",
    "accuracy (%)": "accuracy",
    "mean client accuracy (%)": "mean_client_accuracy",
    "train loss": "train_loss",
    "consensus distance": "consensus_distance",
    "time (s)": "time",
}
"""Columns, and where the last row of metrics.jsonl has them."""


@dataclass(frozen=True)
class RecordedRun:
    """What a run folder says of a run, finished or not."""

    label: str
    engine: str
    finished: bool
    rows: list[dict[str, Any]]

    @property
    def last(self) -> dict[str, Any]:
        return self.rows[-1]


def read_runs(given: Sequence[str]) -> list[RecordedRun]:
    """Run folders, each as FOLDER or LABEL=FOLDER; without a label it is the folder's name."""
    return [_read(label, path) for label, path in labelled(given).items()]


def labelled(given: Sequence[str]) -> dict[str, Path]:
    """Existing run folders by their label; each is given as FOLDER or LABEL=FOLDER.

    Without a label it is the folder's name, with as many parents as tell folders of one name apart.
    """
    said = [_said(text) for text in given]
    unnamed = [path.resolve() for label, path in said if label is None]
    found: dict[str, Path] = {}
    for said_label, path in said:
        label = said_label if said_label is not None else _name(path.resolve(), unnamed)
        if label in found:
            raise UserError(f"two runs are called {label!r}: give each a label, as in {label}_1=FOLDER")
        RunFolder.open(path)
        found[label] = path
    return found


def _said(text: str) -> tuple[str | None, Path]:
    label, equals, folder = text.partition("=")
    if equals and label and not Path(text).exists():
        return label, Path(folder)
    return None, Path(text)


def _name(path: Path, others: Sequence[Path]) -> str:
    """The end of a path that no other path has; one that is there twice keeps its name, to be refused."""
    if others.count(path) == 1:
        for length in range(1, len(path.parts)):
            end = path.parts[-length:]
            if sum(other.parts[-length:] == end for other in others) == 1:
                return "/".join(end)
    return path.name


def _read(label: str, path: Path) -> RecordedRun:
    folder = RunFolder.open(path)
    rows = folder.read_rows("metrics.jsonl")
    if not rows:
        raise UserError(f"{path} has no evaluation yet")
    config = folder.read_object("config.json")
    try:
        engine = str(config["engine"]["name"])
        float(rows[-1]["epoch"]), float(rows[-1]["time"])
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{path} is not a run folder of swiftfl") from None
    return RecordedRun(label, engine, (path / "summary.json").is_file(), rows)


def comparison_table(runs: Sequence[RecordedRun]) -> Table:
    """The last evaluation of each run, all digits."""
    rows: list[list[Cell]] = []
    for run in runs:
        numbers = [_cell(run.last.get(key), column) for column, key in _NUMBERS.items()]
        rows.append([run.label, *numbers, "" if run.finished else "not finished"])
    note = "At the last evaluation; losses and accuracies are of the consensus model unless it says clients."
    return Table("comparison", "Runs compared", ["run", *_NUMBERS, "state"], rows, note)


def _cell(value: Any, column: str) -> Cell:
    if value is None:
        return None
    return 100.0 * float(value) if "%" in column else float(value)


def time_to_loss(rows: Sequence[Mapping[str, Any]], loss: float) -> float | None:
    """When an evaluation first found at most this test loss; None if none did.

    >>> time_to_loss([{"time": 0.0, "loss": 2.0}, {"time": 1.5, "loss": 0.4}], 0.5)
    1.5
    """
    return next((row["time"] for row in rows if row["loss"] is not None and row["loss"] <= loss), None)


def loss_of_all(runs: Iterable[Sequence[Mapping[str, Any]]]) -> float | None:
    """A test loss that every run has reached, the lowest there is, rounded up to three digits.

    None where it says nothing: some run has no loss, or none had a higher one at its start.
    """
    runs = list(runs)
    best = [min((row["loss"] for row in rows if row["loss"] is not None), default=math.inf) for rows in runs]
    worst = max(best, default=math.inf)
    if not 0 < worst < math.inf:
        return None
    unit = 10.0 ** (math.floor(math.log10(worst)) - 2)
    level = float(f"{math.ceil(worst / unit) * unit:.3g}")
    told = any(time_to_loss(rows, level) != rows[0]["time"] for rows in runs)
    return level if told else None


def seeds_table(
    groups: Mapping[str, Sequence[tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]]], loss: float | None
) -> Table:
    """Runs by name, each with its summary and rows for one seed or several: means, and their spread."""
    metrics = dict.fromkeys(m for runs in groups.values() for s, _ in runs for m in s.get("metrics") or {})
    columns: dict[str, Callable[[Mapping[str, Any], Sequence[Mapping[str, Any]]], Any]] = {
        "test loss": lambda s, rows: s["loss"],
        "accuracy (%)": lambda s, rows: None if s["accuracy"] is None else 100 * s["accuracy"],
        **{m: partial(_metric, m) for m in metrics if m != "accuracy"},
        "time (s)": lambda s, rows: rows[-1]["time"] or None,  # where clients are drawn nothing takes time
        "epoch (s)": lambda s, rows: s["seconds_per_epoch"] or None,
        "of it waiting (s)": lambda s, rows: (
            s["waiting_seconds_per_epoch"] if s["seconds_per_epoch"] else None
        ),
    }
    if loss is not None:
        columns[f"to loss {loss:g} (s)"] = lambda s, rows: (
            time_to_loss(rows, loss) if rows[-1]["time"] else None
        )
    body: list[list[Cell]] = []
    for name, runs in groups.items():
        found = {heading: [value(s, rows) for s, rows in runs] for heading, value in columns.items()}
        body.append([name, *(_over_seeds(values, heading) for heading, values in found.items())])
    shown = [0, *(k for k in range(1, len(columns) + 1) if any(row[k] is not None for row in body))]
    headings = ["", *columns]
    seeds = max(map(len, groups.values()))
    note = "Test loss and accuracy of the consensus model; times per epoch are means over clients." + (
        f" Mean ± standard deviation of {seeds} seeds." if seeds > 1 else ""
    )
    rows = [[row[k] for k in shown] for row in body]
    return Table("comparison", "Comparison", [headings[k] for k in shown], rows, note)


def _metric(name: str, summary: Mapping[str, Any], rows: object) -> Any:
    return (summary.get("metrics") or {}).get(name)


def _over_seeds(values: Sequence[float | None], heading: str) -> Cell:
    """One number, or the mean and spread of several; how many there are where some have none."""
    there = [value for value in values if value is not None]
    if not there:
        return None
    if len(values) == 1:
        return there[0]
    digits = 1 if "%" in heading else 3
    return f"{spread(there, digits)}" + (
        "" if len(there) == len(values) else f" ({len(there)} of {len(values)})"
    )


def curves_csv(runs: Sequence[RecordedRun]) -> str:
    """Every evaluation of every run, one line each."""
    columns = ["iteration", *_NUMBERS.values()]
    rows = [[run.label, *(row.get(name) for name in columns)] for run in runs for row in run.rows]
    return Table("curves", "", ["run", *columns], rows).csv()


def as_json(runs: Sequence[RecordedRun]) -> str:
    """The last evaluation of each run, by label."""
    return json.dumps({run.label: {**run.last, "finished": run.finished} for run in runs})
