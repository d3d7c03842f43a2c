"""The progress of a campaign: one line that is updated or, in a pipe, lines.

In a pipe it is a line when something begins, one every half minute, and one when it is done.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

if TYPE_CHECKING:
    from typing_extensions import Self

    from swiftfl.experiment.campaign import CampaignProgress as Campaign

_SECONDS_BETWEEN_LINES = 30.0


class _ProgressLine:
    """One line of text: updated on a terminal, printed first and from time to time elsewhere."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._pieces: Sequence[str] = ()
        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("[bold]{task.description}", table_column=Column(no_wrap=True, min_width=len(name))),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[text]}"),
            console=self._console,
        )
        self._task = self._bar.add_task(name, total=None, text="starting")
        self._printed = ""
        self._printed_at = -math.inf

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._bar.stop()
        elif kind is None and self._pieces:
            self._print(self._pieces)

    def doing(self, what: str) -> None:
        """Say what is done before there is anything to count."""
        if self._console.is_terminal:
            self._bar.update(self._task, text=what)
        else:
            self._print([what])

    def _show(self, done: int, total: int, pieces: Sequence[str]) -> None:
        self._pieces = pieces
        if self._console.is_terminal:
            room = self._console.width - len(self._name) - 2
            self._bar.update(self._task, completed=done, total=total, text=fitting(pieces, room))
        elif time.monotonic() - self._printed_at >= _SECONDS_BETWEEN_LINES:
            self._print(pieces)

    def _print(self, pieces: Sequence[str]) -> None:
        """A line, unless it is the one that was printed last."""
        line = f"{self._name}: {', '.join(pieces)}"
        if line != self._printed:
            print(line, file=self._console.file, flush=True)
        self._printed, self._printed_at = line, time.monotonic()


class CampaignScreen(_ProgressLine):
    """Called with the progress of a campaign, at any rate."""

    def __call__(self, progress: Campaign) -> None:
        self._show(progress.steps_done, progress.steps, _pieces(progress))


class StageScreen(_ProgressLine):
    """Called with the part that is done, and how many of how many are done now.

    The time left is an estimate that takes all parts as equally long.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._first: tuple[float, int] | None = None

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        began, before = self._first = self._first or (now, done)
        pieces = [f"{done}/{total} parts"]
        if before < done < total:
            pieces.append(f"about {duration((now - began) / (done - before) * (total - done))} left")
        if what and done < total:
            pieces.append(f"after {what}")
        self._show(done, total, pieces)


def _pieces(progress: Campaign) -> list[str]:
    """The most important first."""
    pieces = [f"{progress.runs_done}/{progress.runs} runs"]
    if progress.failed:
        pieces.append(f"{len(progress.failed)} failed")
    if progress.seconds_left:
        pieces.append(f"{duration(progress.seconds_left)} left")
    return [*pieces, f"{progress.steps_done:,}/{progress.steps:,} steps"]


def fitting(pieces: Sequence[str], room: int) -> str:
    """As many pieces as there is room for on a line; the first in any case.

    >>> fitting(["3/9 runs", "42 s left", "1,200/3,600 steps"], 24)
    '3/9 runs, 42 s left'
    """
    text = pieces[0]
    for piece in pieces[1:]:
        if len(text) + 2 + len(piece) <= room:
            text += f", {piece}"
    return text


def duration(seconds: float) -> str:
    """A rounded duration.

    >>> duration(42), duration(600), duration(8000)
    ('42 s', '10 min', '2 h 13 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
