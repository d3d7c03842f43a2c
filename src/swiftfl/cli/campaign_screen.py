"""The progress of a campaign: one line that is updated or, in a pipe, a line every half minute."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

if TYPE_CHECKING:
    from typing_extensions import Self

    from swiftfl.experiment.campaign import CampaignProgress as Campaign

_SECONDS_BETWEEN_LINES = 30.0


class _ProgressLine:
    """One line of text: updated on a terminal, printed from time to time elsewhere."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[text]}"),
            console=self._console,
        )
        self._task = self._bar.add_task(name, total=None, text="starting")
        self._printed_at = time.monotonic()

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._bar.stop()

    def _show(self, done: int, total: int, text: str) -> None:
        if self._console.is_terminal:
            self._bar.update(self._task, completed=done, total=total, text=text)
        elif time.monotonic() - self._printed_at >= _SECONDS_BETWEEN_LINES:
            self._print(text)

    def _print(self, text: str) -> None:
        print(f"{self._name}: {text}", file=self._console.file, flush=True)
        self._printed_at = time.monotonic()


class CampaignScreen(_ProgressLine):
    """Called with the progress of a campaign, at any rate."""

    def __call__(self, progress: Campaign) -> None:
        self._show(progress.steps_done, progress.steps, _text(progress))

    def print_result(self, progress: Campaign) -> None:
        """One line for a log; on a terminal the bar shows it already."""
        if not self._console.is_terminal:
            self._print(_text(progress))


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
        text = f"{done}/{total} parts"
        if done > before:
            text += f", about {duration((now - began) / (done - before) * (total - done))} left"
        self._show(done, total, f"{text} ({what})")


def _text(progress: Campaign) -> str:
    text = f"{progress.runs_done}/{progress.runs} runs, {progress.steps_done:,}/{progress.steps:,} steps"
    if progress.failed:
        text += f", {len(progress.failed)} failed"
    if progress.seconds_left:
        text += f", {duration(progress.seconds_left)} left"
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
