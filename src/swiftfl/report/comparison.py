"""Recorded runs beside each other: one table, one picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swiftfl.errors import UserError
from swiftfl.record import RunFolder
from swiftfl.report.numbers import Cell
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
    runs = [_read(*_labelled(text)) for text in given]
    labels = [run.label for run in runs]
    for label in labels:
        if labels.count(label) > 1:
            raise UserError(f"two runs are called {label!r}: give each a label, as in {label}_1=FOLDER")
    return runs


def _labelled(text: str) -> tuple[str, Path]:
    label, equals, folder = text.partition("=")
    if equals and label and not Path(text).exists():
        return label, Path(folder)
    return Path(text).resolve().name, Path(text)


def _read(label: str, path: Path) -> RecordedRun:
    folder = RunFolder.open(path)
    rows = folder.read_rows("metrics.jsonl")
    if not rows:
        raise UserError(f"{path} has no evaluation yet")
    config = folder.read_json("config.json")
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


def curves_csv(runs: Sequence[RecordedRun]) -> str:
    """Every evaluation of every run, one line each."""
    columns = ["iteration", *_NUMBERS.values()]
    rows = [[run.label, *(row.get(name) for name in columns)] for run in runs for row in run.rows]
    return Table("curves", "", ["run", *columns], rows).csv()


def as_json(runs: Sequence[RecordedRun]) -> str:
    """The last evaluation of each run, by label."""
    return json.dumps({run.label: {**run.last, "finished": run.finished} for run in runs})
