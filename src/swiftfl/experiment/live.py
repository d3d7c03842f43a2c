"""Running a configuration for real: watching a live engine, measuring it, and going on another day."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from swiftfl.engines.live.local.engine import Local
from swiftfl.engines.live.options import LiveOptions
from swiftfl.engines.live.resume import find_resume_point
from swiftfl.engines.live.status import FINISHED
from swiftfl.errors import UserError
from swiftfl.experiment.build import Parts, build
from swiftfl.experiment.config import Config
from swiftfl.experiment.measure import finite, row
from swiftfl.experiment.measure_live import measure_live, summarise_live
from swiftfl.experiment.run import Progress, Result, RunStopped, record_start
from swiftfl.record import RunFolder
from swiftfl.vector import consensus

CLIENTS = "clients"
"""The part of a run folder that belongs to the clients: their saves and what they saw."""
_LOOK = 0.1
_SHARE = 0.05  # of the time goes into evaluations, at most


def run_live(config: Config, out: Path | None, progress: Progress) -> Result:
    """Run a configuration with real processes; with `out`, record it there."""
    parts = build(config)
    folder = None if out is None else RunFolder.create(out)
    if folder is not None:
        record_start(folder, config, parts)
    engine = Local(parts.setup, None if out is None else out / CLIENTS, build_options(config))
    return _Watch(config, parts, engine, folder, []).run(progress)


def resume_live(path: Path, config: Config, progress: Progress) -> Result:
    """Go on from the clients' saves: each from its newest or, in rounds, from the newest common one."""
    folder = RunFolder.open(path)
    parts = build(config)
    rows = folder.read_rows("metrics.jsonl")
    folder.rewrite_rows("metrics.jsonl", rows)
    events = folder.read_rows("events.jsonl")
    folder.rewrite_rows("events.jsonl", events)
    elapsed = float(rows[-1]["time"]) if rows else 0.0
    point = find_resume_point(path / CLIENTS, parts.setup, elapsed)
    folder.append("events.jsonl", {"event": "resume", "iteration": point.iteration, "time": elapsed})
    engine = Local(parts.setup, path / CLIENTS, build_options(config), point)
    return _Watch(config, parts, engine, folder, rows).run(progress)


def build_options(config: Config) -> LiveOptions:
    live = config.engine.live
    return LiveOptions(live.save_seconds, live.save_steps, live.record, live.restart_lost)


class _Watch:
    """A live run as its parent sees it."""

    def __init__(
        self,
        config: Config,
        parts: Parts,
        engine: Local,
        folder: RunFolder | None,
        curve: list[dict[str, Any]],
    ) -> None:
        self.config, self.parts, self.engine = config, parts, engine
        self.folder, self.curve = folder, curve

    def run(self, progress: Progress) -> Result:
        with _interruptions() as interrupted:
            try:
                self.engine.start()
                self._until_over(progress, interrupted)
                return self._finish()
            finally:
                self.engine.close()
                self._log()

    def _until_over(self, progress: Progress, interrupted: Callable[[], bool]) -> None:
        engine, setup = self.engine, self.parts.setup
        per_epoch = sum(batches.steps_per_epoch for batches in setup.batches)
        ends = [setup.iterations or 0, (setup.epochs or 0) * per_epoch]
        total = min(end for end in ends if end)
        due = time.perf_counter() + self.config.engine.live.evaluate_seconds
        while not engine.wait(_LOOK):
            self._log()
            if interrupted():
                engine.stop()
            elif time.perf_counter() >= due and engine.status.started:
                began = time.perf_counter()
                last = measure_live(engine, self.config.evaluation.clients)
                self._add(row(last))
                progress(min(engine.iteration, total), total, last)
                spent = time.perf_counter() - began
                due = began + max(self.config.engine.live.evaluate_seconds, spent / _SHARE)

    def _finish(self) -> Result:
        engine = self.engine
        self._log()
        if engine.stopped:
            if self.folder is None:
                raise KeyboardInterrupt
            raise RunStopped(f"stopped; to go on: swiftfl resume {self.folder.path}") from None
        engine.supervisor.fail_if_all_are_lost()
        last = measure_live(engine, self.config.evaluation.clients)
        self._add(row(last))
        models = engine.models
        summary = finite(summarise_live(engine, last))
        if self.folder is not None:
            there = [models[i] for i in engine.members()]
            self.folder.write_models(models, consensus(there))
            self.folder.write_json("summary.json", summary)
            self.folder.append("events.jsonl", self._at("end"))
        return Result(self.config, summary, self.curve, models)

    def _add(self, measured: dict[str, Any]) -> None:
        self.curve.append(measured)
        if self.folder is not None:
            with contextlib.suppress(UserError):  # a full disk costs a point of the curve, not the run
                self.folder.append("metrics.jsonl", measured)

    def _log(self) -> None:
        """What happened to clients since the last time."""
        for event in self.engine.take_log():
            if self.folder is not None:
                with contextlib.suppress(UserError):
                    self.folder.append("events.jsonl", event)

    def _at(self, name: str) -> dict[str, Any]:
        finished = [i for i in range(self.engine.n) if self.engine.status.phase(i) == FINISHED]
        return {
            "event": name,
            "iteration": self.engine.iteration,
            "time": self.engine.now,
            "finished": len(finished),
        }


@contextlib.contextmanager
def _interruptions() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM ask for a stop; a second Ctrl-C does not wait for it."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(number: int, frame: object) -> None:
        asked.set()
        signal.signal(signal.SIGINT, before[signal.SIGINT])

    for number in before:
        signal.signal(number, ask)
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
