"""Running a configuration under MPI: every rank builds it, lives its client, and the first one records.

mpiexec -n 16 swiftfl run digits --engine mpi
"""

from __future__ import annotations

import atexit
import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from swiftfl.engines.live.mpi.engine import Mpi
from swiftfl.engines.live.resume import find_resume_point
from swiftfl.errors import UserError
from swiftfl.experiment.build import Parts, build
from swiftfl.experiment.config import Config
from swiftfl.experiment.live import CLIENTS, build_options
from swiftfl.experiment.measure import Measurement, row
from swiftfl.experiment.measure_live import measure_live, summarise_live
from swiftfl.experiment.run import Progress, Result, RunStopped, record_start
from swiftfl.record import RunFolder
from swiftfl.transports.mpi import MpiJob, world
from swiftfl.vector import consensus

_STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


def run_mpi(config: Config, out: Path | None, progress: Progress) -> Result:
    """This rank's part in a run; only the recorder's result has a summary."""
    ranks = _ranks_for(config)
    parts = build(config)
    out = _agree(ranks, lambda: _new_folder(out, config, parts))
    engine = Mpi(parts.setup, ranks, None if out is None else out / CLIENTS, build_options(config))
    return _Rank(config, engine, out, progress).run()


def resume_mpi(path: Path, config: Config, progress: Progress) -> Result:
    """Go on from the clients' saves, in a folder that every rank can read."""
    ranks = _ranks_for(config)
    parts = build(config)
    folder = RunFolder.open(path)
    point = find_resume_point(path / CLIENTS, parts.setup)

    def note() -> Path:
        folder.append("events.jsonl", {"event": "resume", "iteration": point.iteration, "time": 0.0})
        return path

    _agree(ranks, note)
    engine = Mpi(parts.setup, ranks, path / CLIENTS, build_options(config), point)
    return _Rank(config, engine, path, progress).run()


def _ranks_for(config: Config) -> MpiJob:
    """The job's ranks, if there are as many as clients."""
    ranks, n = world(), config.topology.clients
    if ranks.size != n:
        have = "it was started without mpiexec" if ranks.size == 1 else f"this job has {ranks.size}"
        raise UserError(
            f"engine mpi needs a rank for each of {n} clients, and {have}: "
            f"mpiexec -n {n} swiftfl run ... --engine mpi"
        )
    if config.engine.live.restart_lost:
        raise UserError("--restart-lost needs engine local: MPI cannot start a rank again")
    return ranks


def _new_folder(out: Path | None, config: Config, parts: Parts) -> Path | None:
    if out is None:
        return None
    folder = RunFolder.create(out)
    record_start(folder, config, parts)
    return folder.path.resolve()


def _agree(ranks: MpiJob, prepare: Callable[[], Path | None]) -> Path | None:
    """What the first rank prepares, for all; what it cannot prepare fails everywhere, told once."""
    answer: dict[str, str | None] = {}
    if ranks.rank == 0:
        try:
            path = prepare()
            answer = {"path": None if path is None else str(path)}
        except UserError as error:
            answer = {"error": str(error)}
    answer = ranks.tell(answer)
    if answer.get("error") is not None:
        raise UserError(str(answer["error"]))
    return None if answer["path"] is None else Path(answer["path"])


class _Rank:
    """A run as one rank sees it."""

    def __init__(self, config: Config, engine: Mpi, out: Path | None, progress: Progress) -> None:
        self.config, self.engine, self.out, self.progress = config, engine, out, progress

    def run(self) -> Result:
        engine = self.engine
        if engine.me == 0 and self.out is not None:  # now, for a launcher that was stopped lets nobody speak
            print(f"swiftfl: if this is stopped: {self._again()}", file=sys.stderr, flush=True)
        with _signals(self._ask), self._shown():
            engine.live()
        if engine.stopped:
            text = "stopped" if self.out is None else f"stopped; to go on: {self._again()}"
            raise RunStopped(text if engine.me == 0 else "")
        atexit.register(_leave, engine)  # when the result has been shown
        return self._record() if engine.over else Result(self.config, {}, [], [])

    def _again(self) -> str:
        return f"mpiexec -n {self.engine.n} swiftfl resume {self.out}"

    def _ask(self) -> None:
        self.engine.stop()

    def _record(self) -> Result:
        engine, last = self.engine, measure_live(self.engine, self.config.evaluation.clients)
        summary = summarise_live(engine, last)
        models = engine.models
        if self.out is not None:
            folder = RunFolder.open(self.out)
            folder.append("metrics.jsonl", row(last))
            for event in engine.take_log():
                folder.append("events.jsonl", event)
            folder.write_models(models, consensus([models[i] for i in engine.members()]))
            folder.write_json("summary.json", summary)
            at = {"iteration": engine.iteration, "time": engine.now}
            folder.append("events.jsonl", {"event": "end", **at, "finished": len(engine.members())})
        return Result(self.config, summary, [row(last)], models)

    @contextlib.contextmanager
    def _shown(self) -> Iterator[None]:
        """On the first rank, a thread tells how far the run is."""
        done = threading.Event()
        every = self.config.engine.live.evaluate_seconds
        if self.engine.me != 0:
            yield
            return
        thread = threading.Thread(target=self._show, args=(done, every), daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _show(self, done: threading.Event, every: float) -> None:
        engine, setup = self.engine, self.engine.setup
        per_epoch = sum(batches.steps_per_epoch for batches in setup.batches)
        total = min(end for end in (setup.iterations or 0, (setup.epochs or 0) * per_epoch) if end)
        while not done.wait(every):
            loss = engine.take_train_loss()
            if loss is not None:
                self.progress(min(engine.iteration, total), total, _so_far(engine, loss, per_epoch))


def _so_far(engine: Mpi, loss: float, per_epoch: int) -> Measurement:
    """What is known without asking for models: the clients' own losses."""
    return Measurement(
        iteration=engine.iteration,
        epoch=engine.iteration / per_epoch,
        time=engine.now,
        loss=loss,
        accuracy=None,
        mean_client_loss=loss,
        mean_client_accuracy=None,
        train_loss=loss,
        consensus_distance=0.0,
        models_in_memory=engine.models_in_memory,
        evaluation_seconds=0.0,
    )


def _leave(engine: Mpi) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    engine.leave()


@contextlib.contextmanager
def _signals(ask: Callable[[], None]) -> Iterator[None]:
    """Stop before the next step and save. Open MPI passes Ctrl-C on as SIGTERM, with a quarter of a second to
    live; SIGUSR1 it passes on as it is, and waits."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _STOP}
    for number in before:
        signal.signal(number, lambda number, frame: ask())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
