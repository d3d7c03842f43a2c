"""What a run shows on the terminal. Everything but results goes to standard error."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from swiftfl.transports.ranks import rank_here

if TYPE_CHECKING:
    from swiftfl.experiment.measure import Measurement

_QUIET_SECONDS = 5.0


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


def plain_console(stderr: bool = False) -> Console:
    """A console that writes no control codes where nobody can be at a terminal.

    Under MPI that is everywhere: a launcher may give its ranks a pseudo-terminal, whatever its own output is.
    """
    under_mpi = rank_here() is not None
    return Console(stderr=stderr, highlight=False, force_terminal=False if under_mpi else None)


def show_table(title: str, rows: Mapping[str, Mapping[str, Any]], times: str = "virtual") -> None:
    """The metrics of some runs, one row each; `times` are virtual or real."""
    console = plain_console()
    lines = [
        [name, *("-" if numbers[k] is None else form.format(numbers[k]) for k, (_, form) in COLUMNS.items())]
        for name, numbers in rows.items()
    ]
    lines.insert(0, ["", *(heading for heading, _ in COLUMNS.values())])
    if console.width < WIDE:  # one metric per line, runs beside each other
        lines = [[line.replace("\n", " ") for line in column] for column in zip(*lines, strict=True)]
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, title_style="bold")
    for number, heading in enumerate(lines[0]):
        table.add_column(heading, justify="right" if number else "left", no_wrap=True)
    for line in lines[1:]:
        table.add_row(*line)
    console.print(table)
    console.print(
        f"Accuracy and loss: the average of all models, on test data. Times: {times}, per epoch, means over "
        "clients; an epoch is compute + communication + waiting."
    )


class LiveProgress:
    """A bar per run with rates and time left; on a pipe, a line every few seconds."""

    def __init__(self) -> None:
        self.console = plain_console(stderr=True)
        self.bars = Progress(
            TextColumn("[bold]{task.description:<9}"),
            BarColumn(bar_width=20),
            TextColumn("{task.percentage:>3.0f}% {task.fields[rate]:>7} steps/s"),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[note]}"),
            console=self.console,
        )

    def __enter__(self) -> LiveProgress:
        if self.console.is_terminal:
            self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.console.is_terminal:
            self.bars.stop()
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted(str(error) or "stopped") from None

    def of(self, name: str) -> RunProgress:
        return RunProgress(self, name)


class RunProgress:
    """The progress of one run; called after each evaluation."""

    def __init__(self, screen: LiveProgress, name: str) -> None:
        self._screen = screen
        self._name = name
        self._first: tuple[float, int] | None = None
        self._spoken = time.monotonic()
        self._task = screen.bars.add_task(name, total=None, rate="", note="")

    def __call__(self, done: int, total: int, last: Measurement) -> None:
        now = time.monotonic()
        began, before = self._first = self._first or (now, done)
        rate = (done - before) / (now - began) if now > began else 0.0
        note = f"loss {last.loss:.3f}"
        if last.accuracy is not None:
            note += f"  accuracy {last.accuracy:.1%}"
        if self._screen.console.is_terminal:
            self._screen.bars.update(self._task, completed=done, total=total, rate=f"{rate:,.0f}", note=note)
        elif now - self._spoken >= _QUIET_SECONDS and done < total:
            left = f", {(total - done) / rate:.0f} s left" if rate else ""
            print(
                f"{self._name}: {done / total:.0%}, {note}{left}", file=self._screen.console.file, flush=True
            )
            self._spoken = now
