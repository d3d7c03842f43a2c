"""Running a configuration: the loop around an engine that measures, records and can go on later."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

from swiftfl.engines.membership import CHANGES
from swiftfl.engines.simulation import checkpoint
from swiftfl.engines.simulation.sampled import Sampled
from swiftfl.engines.simulation.virtual import Virtual
from swiftfl.errors import UserError
from swiftfl.experiment.build import Parts, build, resolve
from swiftfl.experiment.config import Config, parse
from swiftfl.experiment.measure import Measurement, finite, measure, row, summarise
from swiftfl.record import RunFolder, versions
from swiftfl.vector import Vector, consensus

_STEPS_BETWEEN_LOOKS = 16
_SECONDS_BETWEEN_TELLING = 0.5


class RunStopped(KeyboardInterrupt):
    """The user stopped a recorded run (Ctrl-C); it can go on from a checkpoint."""


class Progress(Protocol):
    """Whoever shows how far a run is."""

    def __call__(self, done: int, total: int, last: Measurement) -> None: ...


def silent(done: int, total: int, last: Measurement) -> None:
    """No progress is shown."""


@dataclass(frozen=True)
class Result:
    """What a run found. `curve` holds one measurement per evaluation."""

    config: Config
    summary: dict[str, Any]
    curve: list[dict[str, Any]]
    models: list[Vector]


def run(
    config: Config,
    out: Path | None = None,
    progress: Progress = silent,
    checkpoint_every: float | None = None,
) -> Result:
    """Run a configuration; with `out`, record it there, with a checkpoint every so many seconds."""
    if config.engine.name == "mpi":
        from swiftfl.experiment.mpi import run_mpi

        return run_mpi(config, out, progress)
    config = resolve(config)
    if config.engine.real:
        from swiftfl.experiment.live import run_live

        return run_live(config, out, progress)
    parts = build(config)
    folder = None if out is None else RunFolder.create(out)
    engine = parts.engine(config.engine.name)
    if folder is not None:
        record_start(folder, config, parts)
    engine.start()
    recorder = _Recorder(folder, [])
    recorder.add(measure(engine, config.evaluation.clients))
    return _go_on(config, parts, engine, recorder, progress, checkpoint_every)


def record_start(folder: RunFolder, config: Config, parts: Parts) -> None:
    """What is known of a run before it begins."""
    folder.write_json("config.json", config.model_dump(mode="json"))
    folder.write_json("versions.json", versions())
    folder.write_json("partition.json", _describe(parts))
    folder.append("events.jsonl", {"event": "start", "iteration": 0, "time": 0.0})


def _describe(parts: Parts) -> dict[str, Any]:
    """Who holds how many samples, and of which labels where there are classes."""
    partition, data = parts.partition, parts.data
    described: dict[str, Any] = {"partition": partition.name, "sizes": list(partition.sizes)}
    if data.classes is not None:
        described["histogram"] = partition.histogram(data.labels, data.classes).tolist()
    return described


def resume(path: Path, progress: Progress = silent, checkpoint_every: float | None = None) -> Result:
    """Go on with a recorded run from its last checkpoint; the result is that of a run without pause."""
    folder = RunFolder.open(path)
    if (path / "summary.json").is_file():
        raise UserError(f"{path} has finished: there is nothing to resume")
    config = parse(folder.read_json("config.json"))
    if config.engine.name == "mpi":
        from swiftfl.experiment.mpi import resume_mpi

        return resume_mpi(path, config, progress)
    if config.engine.real:
        from swiftfl.experiment.live import resume_live

        return resume_live(path, config, progress)
    parts = build(config)
    engine = parts.engine(config.engine.name)
    saved = folder.checkpoints.read()
    if saved is None:
        engine.start()
        rows: list[dict[str, Any]] = []
    else:
        checkpoint.restore(engine, checkpoint.Checkpoint(saved.tree, saved.arrays))
        rows = [r for r in folder.read_rows("metrics.jsonl") if r["iteration"] <= engine.iteration]
    folder.rewrite_rows("metrics.jsonl", rows)
    folder.rewrite_rows("events.jsonl", _events_until(engine, folder.read_rows("events.jsonl")))
    folder.append("events.jsonl", {"event": "resume", "iteration": engine.iteration, "time": engine.now})
    recorder = _Recorder(folder, rows)
    recorder.last = Measurement(**rows[-1]) if rows else None
    if not rows:
        recorder.add(measure(engine, config.evaluation.clients))
    return _go_on(config, parts, engine, recorder, progress, checkpoint_every)


def _events_until(engine: Virtual | Sampled, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the changes of the network that come after the checkpoint: they will happen again."""
    left = engine.logged if isinstance(engine, Virtual) else 0
    kept = []
    for event in rows:
        if event["event"] in CHANGES:
            left -= 1
        if event["event"] not in CHANGES or left >= 0:
            kept.append(event)
    return kept


class _Recorder:
    """Keeps the curve, in memory and in the run folder if there is one."""

    def __init__(self, folder: RunFolder | None, curve: list[dict[str, Any]]) -> None:
        self.folder = folder
        self.curve = curve
        self.last: Measurement | None = None

    def add(self, measurement: Measurement) -> None:
        self.last = measurement
        self.curve.append(row(measurement))
        if self.folder is not None:
            self.folder.append("metrics.jsonl", self.curve[-1])

    def network(self, engine: Virtual | Sampled) -> None:
        """Record what happened to the network since the last time."""
        if self.folder is not None and isinstance(engine, Virtual):
            for change in engine.take_log():
                self.folder.append("events.jsonl", change)

    def event(self, name: str, engine: Virtual | Sampled, **more: object) -> None:
        if self.folder is not None:
            at = {"event": name, "iteration": engine.iteration, "time": engine.now}
            self.folder.append("events.jsonl", {**at, **more})


def _go_on(
    config: Config,
    parts: Parts,
    engine: Virtual | Sampled,
    recorder: _Recorder,
    progress: Progress,
    checkpoint_every: float | None,
) -> Result:
    every = _evaluation_interval(config, parts)
    total = _total(config, parts)
    saved_at = time.monotonic()

    def tell() -> None:
        assert recorder.last is not None
        try:
            progress(engine.iteration, total, recorder.last)
        except KeyboardInterrupt:
            _stop(engine, recorder)

    with _interruptions_wait() as interrupted:
        while not engine.over:
            _advance(engine, every - engine.iteration % every, interrupted, tell)
            recorder.network(engine)
            if interrupted() and engine.iteration % every and not engine.over:
                _stop(engine, recorder)
            recorder.add(measure(engine, config.evaluation.clients))
            tell()
            if interrupted() and not engine.over:
                _stop(engine, recorder)
            if checkpoint_every is not None and time.monotonic() - saved_at >= checkpoint_every:
                _save(engine, recorder)
                saved_at = time.monotonic()
        return _finish(config, parts, engine, recorder)


def _advance(
    engine: Virtual | Sampled, steps: int, interrupted: Callable[[], bool], tell: Callable[[], None]
) -> None:
    """Go on by so many client steps, telling how far; not so far if the user interrupts."""
    target = engine.iteration + steps
    told = time.monotonic()
    while engine.iteration < target and not engine.over and not interrupted():
        engine.advance(min(_STEPS_BETWEEN_LOOKS, target - engine.iteration))
        if time.monotonic() - told > _SECONDS_BETWEEN_TELLING:
            tell()
            told = time.monotonic()


@contextlib.contextmanager
def _interruptions_wait() -> Iterator[Callable[[], bool]]:
    """Ctrl-C is answered between two events, where a run can be saved; a second one is not awaited."""
    asked = threading.Event()
    before = signal.getsignal(signal.SIGINT)
    usual = before is signal.default_int_handler and threading.current_thread() is threading.main_thread()

    def ask(number: int, frame: object) -> None:
        asked.set()
        signal.signal(signal.SIGINT, before)

    if usual:
        signal.signal(signal.SIGINT, ask)
    try:
        yield asked.is_set
    finally:
        if usual:
            signal.signal(signal.SIGINT, before)


def _stop(engine: Virtual | Sampled, recorder: _Recorder) -> NoReturn:
    _save(engine, recorder)
    if recorder.folder is None:
        raise KeyboardInterrupt
    raise RunStopped(f"stopped; to go on: swiftfl resume {recorder.folder.path}") from None


def _save(engine: Virtual | Sampled, recorder: _Recorder) -> None:
    if recorder.folder is not None:
        saved = checkpoint.save(engine)
        recorder.folder.checkpoints.write(saved.tree, saved.arrays, {})
        recorder.event("checkpoint", engine)


def _finish(config: Config, parts: Parts, engine: Virtual | Sampled, recorder: _Recorder) -> Result:
    last = recorder.last or measure(engine, config.evaluation.clients)
    summary = finite({**summarise(engine, last), "gradients": parts.workload.choices()})
    evaluating = sum(measured["evaluation_seconds"] for measured in recorder.curve)
    if recorder.folder is not None:
        there = [engine.models[i] for i in engine.members()] or engine.models
        recorder.folder.write_models(engine.models, consensus(there))
        recorder.folder.write_json("summary.json", summary)
        recorder.event("end", engine, evaluation_seconds=evaluating)
        recorder.folder.checkpoints.remove()
    return Result(config, summary, recorder.curve, engine.models)


def _evaluation_interval(config: Config, parts: Parts) -> int:
    """In client steps: what all clients together take per epoch, times the epochs between evaluations."""
    per_epoch = sum(batches.steps_per_epoch for batches in parts.setup.batches)
    return max(1, round(per_epoch * config.evaluation.every_epochs))


def _total(config: Config, parts: Parts) -> int:
    setup = parts.setup
    ends = [setup.iterations] if setup.iterations is not None else []
    if setup.epochs is not None:
        ends.append(setup.epochs * sum(batches.steps_per_epoch for batches in setup.batches))
    return min(ends)
