"""The workers of a campaign: who does what, how far they are, and how they end."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swiftfl.experiment.build import resolve
from swiftfl.experiment.config import Config
from swiftfl.experiment.worker import begun

DIVERGED = "it diverged: its last loss is not a number"
_LOOK = 0.5
_SAVE_SECONDS = 60.0


@dataclass(frozen=True)
class Job:
    """One run: where, what, and about how many client steps that is."""

    path: Path
    config: Config
    steps: int
    checkpoint_seconds: float = 30.0


@dataclass
class CampaignProgress:
    """How far a campaign is. `failed` says what went wrong, by run folder."""

    runs: int
    steps: int
    runs_done: int = 0
    steps_done: int = 0
    seconds_left: float | None = None
    failed: dict[str, str] = field(default_factory=dict)


class JobPool:
    """Some workers and the jobs that are left."""

    def __init__(
        self,
        jobs: list[Job],
        progress: CampaignProgress,
        show: Callable[[CampaignProgress], None],
        stopped: Callable[[], bool],
    ) -> None:
        self.todo = list(jobs)
        self.progress, self.show, self.stopped = progress, show, stopped
        self.workers: list[_Worker] = []
        self.selector = selectors.DefaultSelector()
        self.began = time.monotonic()
        self.settled = self.inherited = progress.steps_done

    def work(self, count: int) -> None:
        """Until everything is done; KeyboardInterrupt if stopped, when everybody has saved."""
        try:
            for _ in range(count):
                self._hire()
            while self.workers and not self.stopped():
                self._listen()
                self._estimate()
                self.show(self.progress)
            if self.stopped():
                self._save()
                raise KeyboardInterrupt
        finally:
            for worker in list(self.workers):
                self._dismiss(worker)
            self.selector.close()

    def _hire(self) -> None:
        if self.todo:
            worker = _Worker()
            self.workers.append(worker)
            self.selector.register(worker.news, selectors.EVENT_READ, worker)
            worker.take(self.todo.pop(0))

    def _dismiss(self, worker: _Worker) -> None:
        self.selector.unregister(worker.news)
        self.workers.remove(worker)
        worker.end()

    def _listen(self) -> None:
        for key, _ in self.selector.select(_LOOK):
            worker: _Worker = key.data
            for message in worker.hear():
                self._note(worker, message)
            if worker.gone:
                self._lose(worker)

    def _note(self, worker: _Worker, message: dict[str, Any]) -> None:
        if "done" in message:
            self.inherited += worker.report(message["done"])
            return
        job = worker.job
        assert job is not None
        if "failed" in message:
            self._fail(job, message["failed"])
        else:
            self.progress.runs_done += 1
            self.settled += job.steps
            if message["loss"] is None:
                self.progress.failed[str(job.path)] = DIVERGED
        if self.todo:
            worker.take(self.todo.pop(0))
        else:
            worker.rest()

    def _fail(self, job: Job, reason: str) -> None:
        """It is not done, and not to be waited for either."""
        self.progress.failed[str(job.path)] = reason
        self.progress.steps -= job.steps

    def _lose(self, worker: _Worker) -> None:
        if worker.job is not None and not self.stopped():
            self._fail(worker.job, f"its process ended with code {worker.process.wait()}")
        self._dismiss(worker)
        if not self.stopped():
            self._hire()

    def _estimate(self) -> None:
        """Steps done, and the time left at the speed so far."""
        progress = self.progress
        progress.steps_done = self.settled + sum(worker.done for worker in self.workers)
        mine = progress.steps_done - self.inherited
        if mine > 0:
            seconds = (time.monotonic() - self.began) / mine
            progress.seconds_left = seconds * max(0, progress.steps - progress.steps_done)

    def _save(self) -> None:
        """Everybody saves and ends."""
        for worker in self.workers:
            worker.process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + _SAVE_SECONDS
        while self.workers and time.monotonic() < deadline:
            self._listen()


class _Worker:
    """A process (of its own session: Ctrl-C at the terminal is for the campaign to pass on)."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "swiftfl.experiment.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.jobs, self.news = self.process.stdin, self.process.stdout
        self.job: Job | None = None
        self.done = 0
        self.gone = False
        self._heard = b""
        self._first = True

    def take(self, job: Job) -> None:
        self.job, self.done, self._first = job, 0, True
        line = json.dumps(
            {
                "path": str(job.path),
                "config": resolve(job.config).model_dump(mode="json"),
                "checkpoint_seconds": job.checkpoint_seconds,
            }
        )
        with contextlib.suppress(BrokenPipeError):  # of one that has died: its end is heard in a moment
            self.jobs.write(line.encode() + b"\n")
            self.jobs.flush()

    def rest(self) -> None:
        """There is no more to do: with its last job's news the process ends by itself."""
        self.job, self.done = None, 0
        self.jobs.close()

    def hear(self) -> list[dict[str, Any]]:
        """The news that have come; `gone` when there will be no more."""
        chunk = os.read(self.news.fileno(), 1 << 16)
        self.gone = not chunk
        *lines, self._heard = (self._heard + chunk).split(b"\n")
        return [json.loads(line) for line in lines]

    def report(self, done: int) -> int:
        """How far the job is; the answer is what a run that goes on had already done before."""
        assert self.job is not None
        before = done if self._first and begun(self.job.path) else 0
        self._first, self.done = False, done
        return before

    def end(self) -> None:
        """By force, if need be."""
        self.jobs.close()
        if not self.gone:
            self.process.kill()
        self.process.wait()
        self.news.close()
