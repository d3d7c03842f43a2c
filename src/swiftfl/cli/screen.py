"""What a run shows on the terminal. Everything but results goes to standard error."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

from swiftfl.experiment.bars import ProgressBars, plain_console

if TYPE_CHECKING:
    from swiftfl.report.table import Table as Report


class Interrupted(Exception):  # noqa: N818
    """The user pressed Ctrl-C during a run (typer would swallow a KeyboardInterrupt and its text)."""


COLUMNS = {
    "accuracy": ("accuracy", "{:.1%}"),
    "loss": ("loss", "{:.3f}"),
    "seconds_per_epoch": ("epoch\n(s)", "{:.4f}"),
    "compute_seconds_per_epoch": ("compute\n(s)", "{:.4f}"),
    "communication_seconds_per_epoch": ("commun.\n(s)", "{:.4f}"),
    "waiting_seconds_per_epoch": ("waiting\n(s)", "{:.4f}"),
    "consensus_distance": ("consensus\ndistance", "{:.3f}"),
}


WIDE = 80
"""Columns of a terminal that the table with one row per run needs."""


def default_folder(name: str) -> Path:
    return Path("runs", f"{name}-{datetime.now():%Y%m%d-%H%M%S}")


def show_table(title: str, rows: Mapping[str, Mapping[str, Any]], times: str | None = "virtual") -> None:
    """The metrics of some runs, one row each; `times` are virtual or real, or there are none."""
    console = plain_console()
    columns = {k: column for k, column in COLUMNS.items() if times is not None or "seconds" not in k}
    lines = [
        [name, *(_written(numbers[k], form) for k, (_, form) in columns.items())]
        for name, numbers in rows.items()
    ]
    lines.insert(0, ["", *(heading for heading, _ in columns.values())])
    if console.width < WIDE:  # one metric per line, runs beside each other
        lines = [[line.replace("\n", " ") for line in column] for column in zip(*lines, strict=True)]
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, title_style="bold")
    for number, heading in enumerate(lines[0]):
        table.add_column(heading, justify="right" if number else "left", no_wrap=True)
    for line in lines[1:]:
        table.add_row(*line)
    console.print(table)
    told = (
        "Nothing takes time where clients are drawn."
        if times is None
        else f"Times: {times}, per epoch, means over clients; an epoch is compute + communication + waiting."
    )
    console.print(f"Accuracy and loss: the average of all models, on test data. {told}")


def _written(number: float | None, form: str) -> str:
    """In the form of its column, or with an exponent where that would push the other columns away."""
    if number is None:
        return "-"
    return f"{number:.3g}" if abs(number) >= 1e5 else form.format(number)


def print_table(table: Report) -> None:
    """A line per row or, where the terminal is narrow, a line per column."""
    from swiftfl.report.screen import screen_table

    console = plain_console()
    console.print(screen_table(table, console.width))
    console.print(table.note)


class LiveProgress(ProgressBars):
    """The bars of a command: Ctrl-C ends it with what to type to go on."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted(str(error) or "stopped") from None
