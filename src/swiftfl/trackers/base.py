"""What is told while a run goes on, and to whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

Row = Mapping[str, Any]
"""A row as it stands in the run folder: numbers that are not finite are None."""


@dataclass(frozen=True)
class RunInfo:
    """What is known of a run when it starts.

    Attributes:
        config: The resolved configuration, as it is written to `config.json`.
        folder: The run folder, or None if the run is not recorded.
        clients: How many clients train.
        parameters: The length of the model vector.
        total_steps: Client steps that the run is to take in all.
        iteration: Client steps that have been taken already: 0, or where a resumed run goes on. Rows of
            later iterations that an earlier session has reported will come again.
        resumed: Whether the run goes on from what was saved.
    """

    config: Row
    folder: Path | None
    clients: int
    parameters: int
    total_steps: int
    iteration: int = 0
    resumed: bool = False

    @property
    def name(self) -> str:
        """The name of the run folder, or else the algorithm and the dataset."""
        if self.folder is not None:
            return self.folder.resolve().name
        return f"{self.config['algorithm']['name']} on {self.config['data']['dataset']}"


@runtime_checkable
class Callback(Protocol):
    """Whoever wants to know how a run goes. A class that derives from this one defines what it needs.

    The process that records the run calls it, under MPI one rank; training goes on when the call returns.
    A callback that raises an exception is left out from then on, with one warning; the run goes on.

    >>> class Losses(Callback):
    ...     def __init__(self) -> None:
    ...         self.seen: list[float] = []
    ...
    ...     def on_evaluation(self, row: Row) -> None:
    ...         self.seen.append(row["loss"])
    >>> isinstance(Losses(), Callback)
    True
    """

    def on_start(self, run: RunInfo) -> None:
        """The run starts, or goes on: called once, before anything else.

        Args:
            run: What is known of the run.
        """

    def on_evaluation(self, row: Row) -> None:
        """The models have been evaluated.

        Args:
            row: The row of `metrics.jsonl`: iteration, epoch, time, loss, accuracy and so on.
        """

    def on_event(self, row: Row) -> None:
        """Something has happened: a checkpoint, a client that was lost, a warning.

        Args:
            row: The row of `events.jsonl`; `event` says what it is.
        """

    def on_end(self, summary: Row | None) -> None:
        """The run has ended, and its folder is complete: called once, after everything else.

        Args:
            summary: What is written to `summary.json`, or None if the run was stopped or has failed.
        """
