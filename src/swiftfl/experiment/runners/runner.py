"""What the run loop needs to know of an engine's way to run."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from swiftfl.engines.engine import Engine, LiveEngine
from swiftfl.experiment.build import Parts
from swiftfl.experiment.config import Config
from swiftfl.experiment.given import needs_objects
from swiftfl.experiment.measure import Measurement
from swiftfl.record import RunFolder
from swiftfl.signals import StopRequest

Row = dict[str, Any]
_LOOK = 0.1  # seconds between two looks at a live run


@dataclass(frozen=True)
class Past:
    """What is known of a run that is resumed: its seconds so far, and how often it has been resumed."""

    elapsed: float
    session: int

    @classmethod
    def of(cls, rows: Sequence[Row], events: Sequence[Row]) -> Past:
        times = [float(row["time"]) for row in (*rows, *events) if isinstance(row.get("time"), int | float)]
        return cls(max(times, default=0.0), sum(event.get("event") == "resume" for event in events))


class Runner(Protocol):
    """One run with one kind of engine, in this process."""

    leads: bool
    """Whether this process measures and records the run; under MPI one rank does."""

    def agree(self, prepare: Callable[[], Row]) -> Row:
        """What the process that leads has prepared, or its error, for every process of the run."""

    def new(self, parts: Parts, folder: Path | None) -> Engine:
        """The engine of a new run, not started."""

    def resumed(self, parts: Parts, folder: RunFolder, past: Past, from_start: bool) -> Engine:
        """The engine of a run that goes on from what was saved.

        Where nothing that was saved can be read, that is an error, or with `from_start` a new beginning.
        """

    def keep(self, rows: list[Row], events: list[Row]) -> tuple[list[Row], list[Row]]:
        """Those rows of metrics and events that the run will not write again."""

    def start(self) -> None:
        """Start the engine, unless what was saved has put it into the middle of a run."""

    def advance(self, stop: StopRequest) -> bool:
        """Go on for a moment; whether it is time for a measurement. The end of a run is one."""

    def measured(self) -> Measurement | None:
        """The measurement that was made elsewhere while the run went on, if `advance` was for that."""

    def ask_to_stop(self) -> None:
        """Somebody has asked for a stop; may be called in a signal handler."""

    def stopped(self, stop: StopRequest) -> bool:
        """Whether the run has stopped before its end because it was asked to."""

    def end(self) -> None:
        """End a run that has diverged."""

    def save(self, folder: RunFolder, config: Row) -> bool:
        """Write a checkpoint, if this engine's clients do not save by themselves; whether it did."""

    def figures(self, parts: Parts) -> Row:
        """What else belongs into the summary."""

    def finished(self) -> bool:
        """Called at the end, in every process: whether this one has the result."""

    def command(self, path: Path) -> str:
        """How to resume the run, as it is typed."""


def resume_command(config: Config, path: Path, launcher: str = "") -> str:
    """How to go on with a run, as it is typed; with objects given in Python, in Python."""
    if needs_objects(config) and config.experiment is None:
        return f"swiftfl.train(..., resume={str(path)!r})"
    return f"{launcher}swiftfl resume {shlex.quote(str(path))}"


class LivePace:
    """When a live run is measured: every so many seconds, with at most a share of the time spent on it."""

    def __init__(self, config: Config, share: float) -> None:
        self._every, self._share = config.engine.live.evaluate_seconds, share
        self._due = time.monotonic() + self._every
        self._asked: float | None = None

    def wait(self, engine: LiveEngine) -> bool:
        """Wait a moment; whether it is time for a measurement."""
        if self._asked is not None:  # the measurement that was asked for last has been taken
            now = time.monotonic()
            self._due = self._asked + max(self._every, (now - self._asked) / self._share)
            self._asked = None
        if engine.wait(_LOOK):
            return not engine.stopped
        if time.monotonic() < self._due:
            return False
        self._asked = time.monotonic()
        return True
