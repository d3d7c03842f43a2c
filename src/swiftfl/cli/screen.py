"""What a run shows on the terminal. Everything but results goes to standard error."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from swiftfl.experiment.measure import Measurement

_QUIET_SECONDS = 5.0


class LiveProgress:
    """A bar per run with rates and time left; on a pipe, a line every few seconds."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("[bold]{task.description:<8}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f}%  {task.fields[rate]:>7} steps/s"),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[note]}"),
            console=self.console,
        )

    def __enter__(self) -> LiveProgress:
        if self.console.is_terminal:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.console.is_terminal:
            self._progress.stop()

    def of(self, name: str) -> RunProgress:
        return RunProgress(self, name)


class RunProgress:
    """The progress of one run; called after each evaluation."""

    def __init__(self, screen: LiveProgress, name: str) -> None:
        self._screen = screen
        self._name = name
        self._began = time.monotonic()
        self._spoken = self._began
        self._task = screen._progress.add_task(name, total=None, rate="", note="")

    def __call__(self, done: int, total: int, last: Measurement) -> None:
        now = time.monotonic()
        rate = done / max(now - self._began, 1e-9)
        note = f"loss {last.loss:.3f}"
        if last.accuracy is not None:
            note += f"  accuracy {last.accuracy:.1%}"
        if self._screen.console.is_terminal:
            self._screen._progress.update(
                self._task, completed=done, total=total, rate=f"{rate:,.0f}", note=note
            )
        elif now - self._spoken >= _QUIET_SECONDS and done < total:
            left = (total - done) / rate
            self._screen.console.print(f"{self._name}: {done / total:.0%}, {note}, {left:.0f} s left")
            self._spoken = now
