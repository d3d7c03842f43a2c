"""Keeps what a run leaves behind, in memory and in its folder; a disk that fails costs files, not the run."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from swiftfl.engines.engine import Engine
from swiftfl.errors import UserError
from swiftfl.experiment.build import Parts
from swiftfl.experiment.callbacks import CallbackGroup
from swiftfl.experiment.config import Config
from swiftfl.experiment.measure import Measurement, row
from swiftfl.experiment.notices import notice
from swiftfl.experiment.stages import stage
from swiftfl.files import finite
from swiftfl.record import RunFolder, versions
from swiftfl.record.facts import FACTS
from swiftfl.record.table import columns_of, csv_lines, csv_table, flat
from swiftfl.vector import consensus

Row = dict[str, Any]
METRICS, TABLE, EVENTS, MODEL = "metrics.jsonl", "metrics.csv", "events.jsonl", "model.json"
_log = logging.getLogger(__name__)


class Recorder:
    """The curve, the events and the result of a run; without a folder they are kept in memory only.

    Whatever is recorded, the callbacks are told.
    """

    def __init__(
        self, folder: RunFolder | None, config: Config, parts: Parts, callbacks: CallbackGroup | None = None
    ) -> None:
        self.folder = folder
        self.callbacks = CallbackGroup() if callbacks is None else callbacks
        self.curve: list[Row] = []
        self.events: list[Row] = []
        self.last: Measurement | None = None
        self.elsewhere = False
        self._about = {
            "config.json": config.model_dump(mode="json"),
            "versions.json": versions(),
            "partition.json": _describe(parts),
            MODEL: parts.workload.recorded().as_json(),
        }
        self._columns: list[str] = []  # of the table
        self._trouble: str | None = None

    @property
    def about(self) -> dict[str, Row]:
        """What is known of the run before it begins, by the file that has it."""
        return self._about

    @property
    def config(self) -> Row:
        """The configuration as it is written."""
        tree: Row = self._about["config.json"]
        return tree

    @property
    def resumed(self) -> bool:
        """Whether the run goes on from what was saved."""
        return any(event["event"] == "resume" for event in self.events)

    # --- while it goes on ------------------------------------------------------------------------

    def start(self) -> None:
        """What is known of a run before it begins; a folder that does not take it is an error."""
        if self.folder is not None:
            stage("beginning the record")
            for name, value in self._about.items():
                self.folder.write_json(name, value)
        self.event("start", iteration=0, time=0.0)

    def go_on(self, curve: Sequence[Row], events: Sequence[Row]) -> None:
        """Take up the rows of a run that is resumed."""
        self.curve, self.events = list(curve), list(events)
        self.last = _measurement(self.curve[-1]) if self.curve else None
        if self.folder is not None:
            self._write_curve(self.folder)
            self.folder.rewrite_rows(EVENTS, self.events)

    def add(self, measurement: Measurement) -> None:
        self.last = measurement
        self.curve.append(finite_row(row(measurement)))
        self.attempt(self._append_row)
        self.callbacks.evaluation(self.curve[-1])

    def _append_row(self, folder: RunFolder) -> None:
        last = self.curve[-1]
        folder.append(METRICS, last)
        if set(flat(last)).issubset(self._columns):
            folder.append_text(TABLE, csv_lines([last], self._columns))
        else:  # the first row, a new column, or whoever recorded the rows before was lost
            self._write_table(folder, folder.read_rows(METRICS))

    def event(self, name: str, **more: object) -> None:
        self.log([{"event": name, **more}])

    def log(self, events: Sequence[Row]) -> None:
        if events:  # of which there may be thousands: one write for all
            self.events += events
            self.attempt(lambda folder: folder.append(EVENTS, *events))
            self.callbacks.events(events)

    def attempt(self, write: Callable[[RunFolder], None]) -> str | None:
        """Write something to the folder; what is wrong if that fails, which is reported the first time."""
        if self.folder is None:
            return None
        try:
            write(self.folder)
        except UserError as error:
            _log.warning("%s", error)
            if self._trouble is None:
                self._trouble = str(error)
                notice(f"{error}; the run goes on, and its result is shown at its end")
            return str(error)
        return None

    # --- at its end ------------------------------------------------------------------------------

    def finish(self, engine: Engine, summary: Row) -> None:
        """Write the result, or, where the run folder does not take it, write everything to another one."""
        if self.folder is None:
            return
        try:
            if self._trouble is not None:
                self._write_rows(self.folder)
            self._write_result(self.folder, engine, summary)
        except UserError as error:
            if not self._finish_without_facts(self.folder, error, engine, summary):
                self._finish_elsewhere(self.folder, error, engine, summary)

    def _finish_without_facts(
        self, folder: RunFolder, error: UserError, engine: Engine, summary: Row
    ) -> bool:
        """Where the disk is full, the result is worth more than the facts, which nobody writes any more."""
        if not remove_facts(folder.path, str(error), "the result"):
            return False
        try:
            self._write_rows(folder)
            self._write_result(folder, engine, summary)
        except UserError as problem:
            _log.warning("%s", problem)
            return False
        return True

    def _write_rows(self, folder: RunFolder) -> None:
        for name, value in self._about.items():
            folder.write_json(name, value)
        self._write_curve(folder)
        folder.rewrite_rows(EVENTS, self.events)

    def _write_curve(self, folder: RunFolder) -> None:
        folder.rewrite_rows(METRICS, self.curve)
        self._write_table(folder, self.curve)

    def _write_table(self, folder: RunFolder, rows: Sequence[Row]) -> None:
        self._columns = columns_of(rows)
        folder.rewrite_text(TABLE, csv_table(rows))

    def _write_result(self, folder: RunFolder, engine: Engine, summary: Row) -> None:
        models = engine.models
        folder.write_models(models, consensus([models[i] for i in engine.members()] or models))
        evaluating = sum(measured["evaluation_seconds"] for measured in self.curve)
        end = {"event": "end", "iteration": engine.iteration, "time": engine.now}
        folder.append(EVENTS, {**end, "evaluation_seconds": evaluating})
        # The last file: whoever finds it finds all others complete. A run that is killed before it is
        # written has not finished, whatever its events say, and can be gone on with (`without_end`).
        folder.write_json("summary.json", summary)
        folder.checkpoints.remove()

    def _finish_elsewhere(self, wanted: RunFolder, error: UserError, engine: Engine, summary: Row) -> None:
        self.elsewhere = True
        for base in (Path(tempfile.gettempdir()), Path.cwd()):
            folder = self._write_all(base, wanted.path.name, engine, summary)
            if folder is not None:
                self.folder = folder
                notice(f"the result could not be written to {wanted.path} ({error}): it is in {folder.path}")
                return
        self.folder = None
        notice(f"the result could not be written to {wanted.path} ({error}), nor to any other place")

    def _write_all(self, base: Path, name: str, engine: Engine, summary: Row) -> RunFolder | None:
        try:
            folder = RunFolder(Path(tempfile.mkdtemp(prefix=f"swiftfl-{name}-", dir=base)))
        except OSError as problem:
            _log.warning("%s", problem)
            return None
        try:
            self._write_rows(folder)
            self._write_result(folder, engine, summary)
        except UserError as problem:
            _log.warning("%s", problem)
            shutil.rmtree(folder.path, ignore_errors=True)
            return None
        return folder


def remove_facts(folder: Path, problem: str, purpose: str) -> bool:
    """Where the disk is full, facts give way to what is worth more; whether there were any."""
    full = any(os.strerror(code) in problem for code in (errno.ENOSPC, errno.EDQUOT))
    if not full or not (folder / FACTS).is_dir():
        return False
    shutil.rmtree(folder / FACTS, ignore_errors=True)
    notice(f"{problem}: the facts were removed, to have room for {purpose}")
    return True


def _measurement(last: Row) -> Measurement:
    try:
        return Measurement(**last)
    except TypeError as error:
        raise UserError(f"the last row of {METRICS} is not one of this version: {error}") from None


def without_end(events: Sequence[Row]) -> list[Row]:
    """The events of a run that has not finished: an end that is not followed by a summary was none."""
    return [event for event in events if event["event"] != "end"]


def finite_row(value: Row) -> Row:
    """With None for numbers that are not finite, as it is written."""
    row = finite(value)
    assert isinstance(row, dict)
    return row


def _describe(parts: Parts) -> Row:
    """Who holds how many samples, and of which labels where there are classes."""
    partition, data = parts.partition, parts.data
    described: Row = {"partition": partition.name, "sizes": list(partition.sizes)}
    if data.classes is not None:
        described["histogram"] = partition.histogram(data.labels, data.classes).tolist()
    return described
