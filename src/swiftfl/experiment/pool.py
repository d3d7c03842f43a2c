"""The job pool: the one place where swiftfl runs several independent jobs at once.

A job is a function of a module and its arguments, all plain JSON. Every worker is a fresh process with one
thread and its share of the cores (`experiment/worker.py`), so a job computes the same whichever others there
are. A job that fails, or whose process dies, is reported and the others go on. A signal that asks for a stop
(Ctrl-C, SIGTERM, ...) interrupts the workers, waits until they have saved, and ends in KeyboardInterrupt.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from swiftfl.engines.threads import CORES, PLACE, cores
from swiftfl.fresh import fresh_python
from swiftfl.signals import stop_requests

_log = logging.getLogger(__name__)
_TICK_SECONDS = 0.5
_SAVE_SECONDS = 60.0
"""How long interrupted workers may take to save before they are killed."""
_ONE_THREAD = {"OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Job:
    """`function` is "module:name". It is called as `function(report, **arguments)`, where `report(done)`
    sends progress, and returns plain JSON."""

    name: str
    function: str
    arguments: Mapping[str, object]


@dataclass(frozen=True)
class JobProgress:
    job: Job
    done: int


@dataclass(frozen=True)
class JobFinished:
    job: Job
    result: Any


@dataclass(frozen=True)
class JobFailed:
    job: Job
    reason: str


JobEvent = JobProgress | JobFinished | JobFailed


def run_jobs(
    jobs: Sequence[Job],
    workers: int,
    on_event: Callable[[JobEvent], None],
    on_tick: Callable[[], None] = lambda: None,
) -> None:
    """Run all jobs, started in this order, `workers` at a time.

    `on_event` is called for everything that a job reports, `on_tick` about twice a second.
    """
    if jobs:
        with stop_requests() as stopped:
            _Pool(jobs, on_event, on_tick, stopped).run(min(workers, len(jobs)))


class _Pool:
    """Some workers, and the jobs that no worker has taken yet."""

    def __init__(
        self,
        jobs: Sequence[Job],
        on_event: Callable[[JobEvent], None],
        on_tick: Callable[[], None],
        stopped: Callable[[], bool],
    ) -> None:
        self.waiting = deque(jobs)
        self.on_event, self.on_tick, self.stopped = on_event, on_tick, stopped
        self.workers: list[_Worker] = []
        self.selector = selectors.DefaultSelector()

    def run(self, count: int) -> None:
        self._count = count
        try:
            for _ in range(count):
                self._start_worker()
            while self.workers and not self.stopped():
                self._receive()
                self.on_tick()
            if self.stopped():
                self._interrupt_workers()
                raise KeyboardInterrupt
        finally:
            for worker in list(self.workers):
                self._remove(worker)
            self.selector.close()

    def _start_worker(self) -> None:
        if self.waiting:
            taken = {worker.number for worker in self.workers}
            worker = _Worker(next(k for k in range(self._count) if k not in taken), self._count)
            self.workers.append(worker)
            self.selector.register(worker.messages, selectors.EVENT_READ, worker)
            worker.assign(self.waiting.popleft())

    def _remove(self, worker: _Worker) -> None:
        self.selector.unregister(worker.messages)
        self.workers.remove(worker)
        worker.close()

    def _receive(self) -> None:
        for key, _ in self.selector.select(_TICK_SECONDS):
            worker: _Worker = key.data
            for message in worker.read_messages():
                self._handle(worker, message)
            if worker.ended:
                self._replace(worker)

    def _handle(self, worker: _Worker, message: dict[str, Any]) -> None:
        job = worker.job
        assert job is not None, "only a worker that has a job sends messages"
        if "done" in message:
            self.on_event(JobProgress(job, message["done"]))
            return
        worker.job = None
        if "failed" in message:
            _log.info("job %s failed: %s", job.name, message.get("traceback", message["failed"]))
            self.on_event(JobFailed(job, message["failed"]))
        else:
            self.on_event(JobFinished(job, message["result"]))
        if self.waiting and not self.stopped():
            worker.assign(self.waiting.popleft())
        else:
            worker.dismiss()

    def _replace(self, worker: _Worker) -> None:
        """The process is gone: with its work done, or dead in the middle of a job."""
        if worker.job is not None and not self.stopped():
            self.on_event(JobFailed(worker.job, worker.cause_of_death()))
        self._remove(worker)
        if not self.stopped():
            self._start_worker()

    def _interrupt_workers(self) -> None:
        for worker in self.workers:
            worker.process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + _SAVE_SECONDS
        while self.workers and time.monotonic() < deadline:
            self._receive()


class _Worker:
    """A worker process. It has a session of its own: only the pool decides what Ctrl-C means to it."""

    def __init__(self, number: int, count: int) -> None:
        self.number = number
        each, left = divmod(cores(), count)  # of 8 cores three runs get 3, 3 and 2
        share = max(1, each + (number < left))
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the worker)
        self.process = subprocess.Popen(
            fresh_python("swiftfl.experiment.worker", str(os.getpid())),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
            env={**os.environ, **_ONE_THREAD, CORES: str(share), PLACE: f"{number}/{count}"},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._jobs, self.messages = self.process.stdin, self.process.stdout
        self.job: Job | None = None
        self.ended = False
        self._partial = bytearray()

    def assign(self, job: Job) -> None:
        self.job = job
        line = json.dumps({"function": job.function, "arguments": dict(job.arguments)})
        with contextlib.suppress(BrokenPipeError):  # it has died: the end of its messages is read next
            self._jobs.write(line.encode() + b"\n")
            self._jobs.flush()

    def dismiss(self) -> None:
        """There is no further job: the process ends when it reads the end of its input."""
        with contextlib.suppress(BrokenPipeError):
            self._jobs.close()

    def read_messages(self) -> list[dict[str, Any]]:
        """The messages that have arrived; `ended` is set when there will be no more."""
        chunk = os.read(self.messages.fileno(), 1 << 20)
        self.ended = not chunk
        self._partial += chunk
        if b"\n" not in chunk:
            return []
        *lines, rest = bytes(self._partial).split(b"\n")
        self._partial = bytearray(rest)
        return [json.loads(line) for line in lines]

    def cause_of_death(self) -> str:
        """How the process ended, with the last line it wrote to standard error."""
        code = self.process.wait()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        self._errors.seek(0)
        said = self._errors.read()[-2000:].decode(errors="replace").strip()
        return f"its process {how}" + (f": {said.splitlines()[-1]}" if said else "")

    def close(self) -> None:
        """Release everything; a process that still runs is killed."""
        self.dismiss()
        if not self.ended:
            self.process.kill()
        self.process.wait()
        self.messages.close()
        self._errors.close()
