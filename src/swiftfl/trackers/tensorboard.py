"""TensorBoard: `tensorboard --logdir runs` shows all runs below a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from swiftfl.errors import UserError
from swiftfl.files import json_text
from swiftfl.trackers.base import Callback, Row, RunInfo
from swiftfl.trackers.library import numbers, require

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class TensorBoard(Callback):
    """Writes curves, the configuration, events and the summary for TensorBoard.

    The axis of the curves is the iteration (client steps); `time` and `epoch` are curves themselves.

    Args:
        folder: Where to write; by default `tensorboard` in the run folder.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        require("tensorboard", "tensorboard")
        self._folder = None if folder is None else Path(folder)
        self._writer: SummaryWriter | None = None
        self._iteration = 0

    def on_start(self, run: RunInfo) -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder = self._folder or (None if run.folder is None else run.folder / "tensorboard")
        if folder is None:
            raise UserError("this run has no folder: give TensorBoard one, TensorBoard('logs')")
        # What an earlier session wrote after the point from which the run goes on is not shown.
        purge = run.iteration + 1 if run.resumed else None
        self._iteration = run.iteration
        self._writer = SummaryWriter(str(folder), purge_step=purge)
        self._text("config", run.config)

    def on_evaluation(self, row: Row) -> None:
        if self._writer is None:
            return
        self._iteration = row["iteration"]
        for name, value in numbers(row).items():
            if name != "iteration":
                self._writer.add_scalar(name, value, self._iteration)
        self._writer.flush()

    def on_event(self, row: Row) -> None:
        self._text("events", row)

    def on_end(self, summary: Row | None) -> None:
        if self._writer is None:
            return
        if summary is not None:
            self._text("summary", summary)
        self._writer.close()
        self._writer = None

    def _text(self, name: str, value: object) -> None:
        """JSON as a block of code, which TensorBoard shows as Markdown."""
        if self._writer is not None:
            lines = json_text(value, indent=2).replace("\n", "\n    ")
            self._writer.add_text(name, f"    {lines}", self._iteration)
