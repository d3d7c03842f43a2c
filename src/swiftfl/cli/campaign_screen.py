"""How far a campaign is: one line that stays, or on a pipe a line every half minute."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

if TYPE_CHECKING:
    from typing_extensions import Self

    from swiftfl.experiment.pool import CampaignProgress as Campaign

_QUIET_SECONDS = 30.0


class _Line:
    """One line of text that stays on a terminal; elsewhere it is said from time to time."""

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
        self._spoken = time.monotonic()

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
        elif time.monotonic() - self._spoken >= _QUIET_SECONDS:
            self._say(text)

    def _say(self, text: str) -> None:
        print(f"{self._name}: {text}", file=self._console.file, flush=True)
        self._spoken = time.monotonic()


class CampaignScreen(_Line):
    """Called with the progress of a campaign, as often as one likes."""

    def __call__(self, progress: Campaign) -> None:
        self._show(progress.steps_done, progress.steps, _text(progress))

    def say(self, progress: Campaign) -> None:
        """One line, for those who read a log; on a terminal the bar has said it."""
        if not self._console.is_terminal:
            self._say(_text(progress))


class StageScreen(_Line):
    """Called with what has just been done, and how many of how many parts that makes.

    The time left takes all parts as equally long, which they are not.
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
    """Roughly, as one would say it.

    >>> duration(42), duration(600), duration(8000)
    ('42 s', '10 min', '2 h 13 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
