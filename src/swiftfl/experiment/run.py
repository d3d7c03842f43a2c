"""Running a configuration: one loop for all engines that starts, measures, records, stops, resumes, finishes.

A runner (`experiment/runners`) supplies what differs between engines.
"""

from __future__ import annotations

import contextlib
import logging
import math
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn, Protocol

import numpy as np

from swiftfl.engines.engine import WARNING, Engine
from swiftfl.errors import UserError
from swiftfl.experiment.accountant import privacy_figures
from swiftfl.experiment.build import Parts, build, resolve
from swiftfl.experiment.callbacks import Callback, CallbackGroup, RunInfo, with_trackers
from swiftfl.experiment.code import changes_of_code, code_of, refuse_changed_code, refuse_other_code
from swiftfl.experiment.config import Config, parse
from swiftfl.experiment.facts import FactsRecorder, write_last_word
from swiftfl.experiment.given import Given
from swiftfl.experiment.measure import Measurement, measure, summarise
from swiftfl.experiment.notices import notice
from swiftfl.experiment.recorder import EVENTS, METRICS, Recorder, finite_row, without_end
from swiftfl.experiment.runners.runner import Past, Runner
from swiftfl.experiment.runners.simulated import SimulatedRunner, total_steps
from swiftfl.experiment.saving import SavingTimes
from swiftfl.memory import collecting_seldom
from swiftfl.record import RunFolder
from swiftfl.record.facts import ClientState
from swiftfl.signals import StopRequest, stop_requests
from swiftfl.vector import Vector

_SECONDS_BETWEEN_PROGRESS = 0.5
_MOST_WARNINGS = 5  # that are shown at once; all are recorded
_log = logging.getLogger(__name__)


class RunStopped(KeyboardInterrupt):
    """A recorded run was stopped (Ctrl-C, SIGTERM and the like); it can go on from what was saved."""


class Progress(Protocol):
    """Whoever shows how far a run is; called every half second or so, and after each measurement."""

    def __call__(self, done: int, total: int, last: Measurement) -> None: ...


def silent(done: int, total: int, last: Measurement) -> None:
    """No progress is shown."""


@dataclass(frozen=True)
class RunResult:
    """What a run found. `curve` holds one measurement per evaluation.

    `folder` is where it is recorded; if that is not where it was to be, because the disk did not take it,
    `elsewhere` is true. Under MPI only one rank has a summary.
    """

    config: Config
    summary: dict[str, Any]
    curve: list[dict[str, Any]]
    models: list[Vector]
    folder: Path | None = None
    elsewhere: bool = False
    members: tuple[int, ...] = ()
    """The clients that were there at the end, whose models make the consensus."""
    events: list[dict[str, Any]] = field(default_factory=list)
    about: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What else is written into a run folder, by the name of the file."""

    @property
    def diverged(self) -> bool:
        return bool(self.summary.get("diverged"))


def run(
    config: Config,
    out: Path | None = None,
    progress: Progress = silent,
    checkpoint_every: float | None = None,
    callbacks: Sequence[Callback] = (),
    given: Given | None = None,
) -> RunResult:
    """Run a configuration; with `out`, record it there, with a checkpoint every so many seconds.

    Objects that are `given` take the place of what the configuration names, and their names stand in the
    configuration that is recorded.
    """
    changes = changes_of_code(config)
    config = resolve(config if given is None else given.described(config))
    callbacks = with_trackers(callbacks, config.trackers, out is not None)
    runner = runner_of(config)
    parts = build(config, given)
    # From here on a signal does not end the command while it writes: the run starts, and then stops.
    with stop_requests() as stop, contextlib.ExitStack() as held:
        recorder = Recorder(None, config, parts, CallbackGroup(callbacks))

        def prepare() -> dict[str, Any]:
            code = code_of(config)
            if out is None:
                recorder.start()
                return {"path": None, "code": code}
            recorder.folder = RunFolder.create(out)
            held.enter_context(recorder.folder.locked())
            if (out / "config.json").exists():
                raise UserError(f"{out} is not an empty folder: another run has just begun there")
            recorder.start()
            return {"path": str(out.resolve()), "code": code}

        agreed = runner.agree(prepare)
        refuse_other_code(agreed["code"], config)
        path = agreed["path"]
        for text in (*changes, *parts.notes) if runner.leads else ():
            notice(text)
        folder = out if runner.leads or path is None else Path(path)
        engine = runner.new(parts, folder)
        return _Loop(config, parts, runner, engine, recorder, folder, progress, checkpoint_every).run(stop)


def resume(
    path: Path,
    progress: Progress = silent,
    checkpoint_every: float | None = None,
    from_start: bool = False,
    callbacks: Sequence[Callback] = (),
    given: Given | None = None,
    accept_changes: bool = False,
    workers: int | str | None = None,
) -> RunResult:
    """Go on with a recorded run from what was saved; a simulated one as if there had been no pause.

    Objects that were given when it began are given again. Code of the user's own that has changed since then
    is an error, unless `accept_changes`. Saves that cannot be read are an error, unless `from_start` allows
    to begin again where there is none. `workers` may be others than before: no bit depends on them.
    """
    folder = RunFolder.open(path)
    config = parse(folder.read_object("config.json"))
    callbacks = with_trackers(callbacks, config.trackers, True)
    changes = refuse_changed_code(config, accept_changes)
    config = config.with_changes({"sources": code_of(config)}) if changes else config
    config = config if workers is None else config.with_changes({"engine.workers": workers})
    runner = runner_of(config)
    parts = build(config, given)
    with stop_requests() as stop, contextlib.ExitStack() as held:
        recorder = Recorder(None, config, parts, CallbackGroup(callbacks))

        def prepare() -> dict[str, Any]:
            recorder.folder = folder
            held.enter_context(folder.locked())
            if (path / "summary.json").is_file():
                raise UserError(f"{path} has finished: there is nothing to resume")
            recorder.curve, recorder.events = folder.read_rows(METRICS), without_end(folder.read_rows(EVENTS))
            past = Past.of(recorder.curve, recorder.events)
            return {"elapsed": past.elapsed, "session": past.session}

        past = Past(**runner.agree(prepare))
        engine = runner.resumed(parts, folder, past, from_start)
        if runner.leads:
            recorder.go_on(*runner.keep(recorder.curve, recorder.events))
            recorder.event("resume", iteration=engine.iteration, time=engine.now)
            if changes:
                folder.write_json("config.json", recorder.config)
                recorder.event("code_changed", iteration=engine.iteration, time=engine.now, changes=changes)
        return _Loop(config, parts, runner, engine, recorder, path, progress, checkpoint_every).run(stop)


def runner_of(config: Config) -> Runner:
    """Who runs this configuration; torch processes and MPI are loaded only where they are used."""
    if config.engine.name == "local":
        from swiftfl.experiment.runners.local import LocalRunner

        return LocalRunner(config)
    if config.engine.name == "mpi":
        from swiftfl.experiment.runners.mpi import MpiRunner

        return MpiRunner(config)
    return SimulatedRunner(config)


class _Loop:
    """A run from its start, or from where it goes on, to its end."""

    def __init__(
        self,
        config: Config,
        parts: Parts,
        runner: Runner,
        engine: Engine,
        recorder: Recorder,
        path: Path | None,
        progress: Progress,
        checkpoint_every: float | None,
    ) -> None:
        self.config, self.parts = config, parts
        self.runner, self.engine, self.recorder, self.path = runner, engine, recorder, path
        self.progress, self.saving = progress, SavingTimes(checkpoint_every)
        self.total = total_steps(parts)
        self.diverged = False
        self.facts: FactsRecorder | None = None
        self._warnings = 0  # so far
        self._told = time.monotonic()
        self._saved_at: tuple[int, float] | None = None  # where in the run the newest checkpoint is

    def run(self, stop: StopRequest) -> RunResult:
        runner, engine = self.runner, self.engine
        _log.info("the %s engine starts at iteration %d", self.config.engine.name, engine.iteration)
        try:
            # What is not finite is looked for, and reported, by ourselves.
            with np.errstate(over="ignore", invalid="ignore"), collecting_seldom(engine.n):
                began = engine.now
                iteration = engine.iteration
                if runner.leads and self.config.record.facts:
                    self.recorder.attempt(self._begin_facts)
                runner.start()
                stop.then(runner.ask_to_stop)
                if runner.leads:  # after the start, since a callback may have threads, and an engine forks
                    self._start_callbacks(iteration)
                if runner.leads and self.recorder.last is None:
                    self._measure(began)
                while not engine.over and not self.diverged:
                    self._turn(stop)
                if self.diverged:
                    runner.end()
                elif runner.stopped(stop):
                    self._stop()
                return self._finish()
        finally:
            engine.close()
            self._end_facts(ClientState.STOPPED)  # unless the run has finished
            if runner.leads:
                self._take_log()
            self.recorder.callbacks.end(None)  # unless the run has finished

    def _start_callbacks(self, iteration: int) -> None:
        self.recorder.callbacks.start(
            RunInfo(
                config=self.recorder.config,
                folder=None if self.recorder.folder is None else self.recorder.folder.path,
                clients=self.config.topology.clients,
                parameters=self.parts.setup.workload.parameters,
                total_steps=self.total,
                iteration=iteration,
                resumed=self.recorder.resumed or not self.runner.leads,
            )
        )

    # --- facts -----------------------------------------------------------------------------------

    def _begin_facts(self, folder: RunFolder) -> None:
        self.facts = FactsRecorder(folder.path, self.engine, self.config, self.total)

    def _write_facts(self, write: Callable[[FactsRecorder], None]) -> None:
        """What the disk does not take is missing in the facts, and the run goes on."""
        facts = self.facts
        if facts is not None:
            self.recorder.attempt(lambda folder: write(facts))

    def _end_facts(self, outcome: ClientState) -> None:
        self._write_facts(lambda facts: facts.close(outcome))
        self.facts = None

    # --- while it goes on ------------------------------------------------------------------------

    def _turn(self, stop: StopRequest) -> None:
        """Go on for a moment, and do what is due."""
        due = self.runner.advance(stop)
        if not self.runner.leads:
            return
        self._take_log()
        self._write_facts(FactsRecorder.tick)
        if due and (self.engine.members() or not self.engine.over):
            self._measure()
        if due or time.monotonic() - self._told >= _SECONDS_BETWEEN_PROGRESS:
            self._tell(stop)
        if self.runner.stopped(stop) and not self.diverged:
            self._stop()
        if self.saving.due and not self.engine.over:
            with self.saving.timed():
                self._save()

    def _take_log(self) -> None:
        """Record what happened, and show warnings, the first few."""
        new = self.engine.take_log()
        self.recorder.log(new)
        for text in [event["text"] for event in new if event["event"] == WARNING]:
            self._warnings += 1
            if self._warnings <= _MOST_WARNINGS:
                notice(f"warning: {text}")
            if self._warnings == _MOST_WARNINGS + 1:
                notice(f"there are further warnings, which are recorded in {EVENTS}")

    def _measure(self, at: float | None = None) -> None:
        """Measure and record, as of now or of a given time; see whether the run has diverged."""
        engine = self.engine
        found = self.runner.measured() or measure(engine, self.config.evaluation.clients)
        self.recorder.add(found if at is None else replace(found, time=at))
        members, discarding = engine.members(), set(engine.discarding())
        why = None
        if not math.isfinite(found.loss):
            why = "the loss is not finite"
        elif members and discarding.issuperset(members):
            why = "no client's step gives finite numbers any more"
        if why is not None:
            self.diverged = True
            notice(f"diverged at epoch {found.epoch:.3g}: {why}; try a smaller --lr")
            self._event("diverged", reason=why)

    def _tell(self, stop: StopRequest) -> None:
        assert self.recorder.last is not None
        self._told = time.monotonic()
        try:
            self.progress(min(self.engine.iteration, self.total), self.total, self.recorder.last)
        except KeyboardInterrupt:
            if stop():
                raise  # the second time it is not awaited
            stop.ask(signal.SIGINT)

    def _save(self) -> str | None:
        """What is wrong if a checkpoint could not be written."""
        self._write_facts(FactsRecorder.write)  # a resumed run goes on with the steps until here

        def write(folder: RunFolder) -> None:
            if self.runner.save(folder, self.recorder.config):
                self._event("checkpoint")
                self._saved_at = self.engine.iteration, self.engine.now

        problem = self.recorder.attempt(write)
        if problem is not None and self.facts is not None and self.facts.gave_way(problem):
            self.facts = None
            problem = self.recorder.attempt(write)
        return problem

    def _stop(self) -> NoReturn:
        """Save, and say how to go on."""
        if not self.runner.leads:
            raise RunStopped("")
        just_saved = self._saved_at == (self.engine.iteration, self.engine.now)  # asked to stop meanwhile
        problem = None if just_saved else self._save()
        if self.path is None:
            raise KeyboardInterrupt
        if problem is not None:
            raise RunStopped(f"stopped; its state could not be saved: {problem}") from None
        if self.recorder.events[-1]["event"] != "checkpoint":
            self._event("stop")  # clients have saved by themselves
        raise RunStopped(f"stopped; to go on: {self.runner.command(self.path)}") from None

    def _event(self, name: str, **more: object) -> None:
        self.recorder.event(name, iteration=self.engine.iteration, time=self.engine.now, **more)

    # --- at its end ------------------------------------------------------------------------------

    def _finish(self) -> RunResult:
        engine, recorder = self.engine, self.recorder
        if not self.runner.finished():
            return RunResult(self.config, {}, [], [])
        if not self.runner.leads:  # whoever led is lost
            recorder.folder = None if self.path is None else RunFolder.open(self.path)
            self._start_callbacks(engine.iteration)
            recorder.attempt(lambda folder: write_last_word(folder.path, engine))
        self._take_log()
        if not engine.members():
            self._fail()
        if recorder.last is None or (recorder.last.iteration != engine.iteration and not self.diverged):
            self._measure()
        assert recorder.last is not None
        self._end_facts(ClientState.STOPPED if self.diverged else ClientState.FINISHED)
        summary = {**summarise(engine, recorder.last), "diverged": self.diverged}
        private = privacy_figures(self.config, engine, recorder.events)
        summary = finite_row({**summary, **self.runner.figures(self.parts), **private})
        recorder.finish(engine, summary)
        recorder.callbacks.end(summary)
        _log.info("finished at iteration %d", engine.iteration)
        where = None if recorder.folder is None else recorder.folder.path
        return RunResult(
            self.config,
            summary,
            recorder.curve,
            engine.models,
            where,
            recorder.elsewhere,
            tuple(engine.members()),
            recorder.events,
            recorder.about,
        )

    def _fail(self) -> NoReturn:
        """A run of which nobody is left has no result."""
        reasons = [event["reason"] for event in self.recorder.events if "reason" in event]
        self._event("failed", reason="no client is left")
        raise UserError("no client is left" + (f": {reasons[0]}" if reasons else ""))
