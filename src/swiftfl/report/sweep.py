"""The results of a sweep: a table with a line per cell, and CSV with a line per run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swiftfl.record import RunFolder
from swiftfl.report.numbers import Cell, spread
from swiftfl.report.table import Table

_SHOWN = {
    "test loss": ("loss", 1.0, 4),
    "accuracy (%)": ("accuracy", 100.0, 2),
    "epoch (s)": ("seconds_per_epoch", 1.0, 4),
}
"""Columns of the table: which number of a summary, times what, with how many decimals."""
_WRITTEN = (
    "loss", "accuracy", "mean_client_loss", "mean_client_accuracy", "consensus_distance", "epoch",
    "seconds_per_epoch", "compute_seconds_per_epoch", "communication_seconds_per_epoch",
    "waiting_seconds_per_epoch", "iterations", "diverged",
)  # fmt: skip
"""Columns of the CSV."""


@dataclass(frozen=True)
class SweptCell:
    """The values of one cell, and its run folders by seed, finished or not."""

    values: Mapping[str, str]
    runs: Mapping[int, Path]

    def summaries(self) -> dict[int, dict[str, Any]]:
        """Of the runs that have finished."""
        there = {seed: path for seed, path in self.runs.items() if (path / "summary.json").is_file()}
        return {seed: RunFolder(path).read_json("summary.json") for seed, path in there.items()}


def sweep_table(cells: Sequence[SweptCell]) -> Table:
    rows: list[list[Cell]] = []
    for cell in cells:
        found = [summary for summary in cell.summaries().values() if not summary.get("diverged")]
        numbers = [_spread(found, *shown) for shown in _SHOWN.values()]
        rows.append([*cell.values.values(), f"{len(found)}/{len(cell.runs)}", *numbers])
    keys = list(cells[0].values) if cells else []
    headings = [*keys, "runs", *_SHOWN]
    if all(row[-1] is None for row in rows) and any(row[-2] or row[-3] for row in rows):
        headings, rows = (
            headings[:-1],
            [row[:-1] for row in rows],
        )  # where clients are drawn nothing takes time
    note = "Of the consensus models at the end; mean ± standard deviation over the runs that have a result."
    return Table("sweep", "Sweep", headings, rows, note)


def _spread(summaries: Sequence[Mapping[str, Any]], key: str, scale: float, digits: int) -> str | None:
    found = [scale * one[key] for one in summaries if one.get(key) is not None]
    if key == "seconds_per_epoch":
        found = [seconds for seconds in found if seconds]
    return spread(found, digits)


def sweep_csv(cells: Sequence[SweptCell], out: Path) -> str:
    """Every finished run, all digits; folders are those inside `out`."""
    rows: list[list[Cell]] = []
    for cell in cells:
        for seed, summary in cell.summaries().items():
            numbers = [_plain(summary.get(key)) for key in _WRITTEN]
            rows.append([*cell.values.values(), seed, *numbers, str(cell.runs[seed].relative_to(out))])
    keys = list(cells[0].values) if cells else []
    return Table("sweep", "", [*keys, "seed", *_WRITTEN, "run"], rows).csv()


def _plain(value: Any) -> Cell:
    return str(value).lower() if isinstance(value, bool) else value
