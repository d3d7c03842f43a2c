"""Bars that show how far runs are, on standard error."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from swiftfl.experiment.stages import show_stages, stages_over
from swiftfl.transports.ranks import rank_here

if TYPE_CHECKING:
    from typing_extensions import Self

    from swiftfl.experiment.measure import Measurement

_QUIET_SECONDS = 5.0


def plain_console(stderr: bool = False) -> Console:
    """A console that writes no control codes where nobody can be at a terminal.

    Under MPI that is everywhere: a launcher may give its ranks a pseudo-terminal, whatever its own output is.
    """
    under_mpi = rank_here() is not None
    return Console(stderr=stderr, highlight=False, force_terminal=False if under_mpi else None)


class ProgressBars:
    """A bar per run with rates and time left; on a pipe, a line every few seconds.

    Runs that are shorter than `delay` seconds show nothing.
    """

    def __init__(self, delay: float = 0.0) -> None:
        self.console = plain_console(stderr=True)
        self.live = self.console.is_terminal or self.console.is_jupyter
        self._due, self._started = time.monotonic() + delay, False
        self.bars = Progress(
            TextColumn("[bold]{task.description:<9}"),
            BarColumn(bar_width=20),
            TextColumn("{task.percentage:>3.0f}% {task.fields[rate]:>7} steps/s"),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[note]}"),
            console=self.console,
        )

    def __enter__(self) -> Self:
        self.show()
        return self

    def show(self) -> None:
        """Begin to show the bars, if it is time for that."""
        if self.live and not self._started and time.monotonic() >= self._due:
            self._started = True
            stages_over()
            self.bars.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stages_over()
        if self._started:
            self.bars.stop()

    def of(self, name: str) -> RunProgress:
        """The bar of a run that is about to be made; while there are no bars, a line says what is made."""
        if not self._started:
            show_stages(self.console)
        return RunProgress(self, name)


class RunProgress:
    """The progress of one run; called after each evaluation."""

    def __init__(self, screen: ProgressBars, name: str) -> None:
        self._screen = screen
        self._name = name
        self._first: tuple[float, int] | None = None
        self._spoken = time.monotonic()
        self._task = screen.bars.add_task(name, total=None, rate="", note="")

    def __call__(self, done: int, total: int, last: Measurement) -> None:
        stages_over()
        now = time.monotonic()
        began, before = self._first = self._first or (now, done)
        rate = (done - before) / (now - began) if now > began else 0.0
        note = f"loss {last.loss:.3f}"
        if last.accuracy is not None:
            note += f"  accuracy {last.accuracy:.1%}"
        if self._screen.live:
            self._screen.show()
            self._screen.bars.update(self._task, completed=done, total=total, rate=f"{rate:,.0f}", note=note)
        elif now - self._spoken >= _QUIET_SECONDS and done < total:
            left = f", {(total - done) / rate:.0f} s left" if rate else ""
            print(
                f"{self._name}: {done / total:.0%}, {note}{left}", file=self._screen.console.file, flush=True
            )
            self._spoken = now
