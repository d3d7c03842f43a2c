"""Clients for experiments: real processes that can be stopped and killed, or threads of this one."""

from __future__ import annotations

import json
import multiprocessing as mp
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from swiftfl.transports.base import Plan, Transport
from swiftfl.vector import Vector

LIMIT = 30.0
"""Seconds after which something that should have happened counts as blocked: generous on purpose."""

Say = Callable[[object], None]
Task = Callable[[Transport, Say], object]


class Failed(Exception):  # noqa: N818
    """The transport did not keep a promise; the text says which."""


class Skipped(Exception):  # noqa: N818
    """The experiment makes no sense with this transport."""


@dataclass(frozen=True)
class Kind:
    """How to make a transport: `create(neighbours, size, dtype, x0)`, and where its clients live."""

    name: str
    create: Callable[[Sequence[Sequence[int]], int, Any, Vector], Plan]
    processes: bool = True
    program: str | None = None
    """A module that runs the checks by itself, under a launcher, where clients cannot be forked."""


class Worker:
    """A client at work on a task; what it says (small JSON values) can be heard, its result last."""

    def __init__(self, plan: Plan, i: int, task: Task, processes: bool) -> None:
        self.i = i
        self.heard: queue.Queue[str] = queue.Queue()
        self.process: Any = None
        if not processes:
            threading.Thread(target=_work, args=(plan, i, task, self.heard.put), daemon=True).start()
            return
        self.ear, mouth = mp.Pipe(duplex=False)
        context = mp.get_context("fork")
        self.process = context.Process(target=_in_process, args=(plan, i, task, mouth), daemon=True)
        self.process.start()
        mouth.close()

    def hear(self) -> Any:
        """The next thing that it says; Failed if that takes too long or it fell over."""
        message = json.loads(self._next(LIMIT))
        if "error" in message:
            raise Failed(f"client {self.i}: {message['error']}")
        return message["value"]

    def _next(self, limit: float) -> str:
        try:
            if self.process is None:
                return self.heard.get(timeout=limit)
            if self.ear.poll(limit):
                return self.ear.recv_bytes().decode()
        except queue.Empty:
            pass
        except (EOFError, OSError):
            raise Failed(f"client {self.i} ended without a word") from None
        raise Failed(f"client {self.i} was blocked for {limit:g} s")

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)
        if number == signal.SIGKILL:
            self.process.join(LIMIT)

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join(LIMIT)
            self.process.close()
            self.ear.close()


def _in_process(plan: Plan, i: int, task: Task, mouth: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _work(plan, i, task, lambda text: mouth.send_bytes(text.encode()))
    mouth.close()


def _work(plan: Plan, i: int, task: Task, send: Callable[[str], None]) -> None:
    try:
        wire = plan.connect(i)
        result = task(wire, lambda value: send(json.dumps({"value": value})))
        wire.close()
        send(json.dumps({"value": result}))
    except Exception as error:
        send(json.dumps({"error": f"{type(error).__name__}: {error}"}))


@dataclass
class Participants:
    """A transport for an experiment, its clients, and the broom afterwards."""

    kind: Kind
    plan: Plan = field(init=False)
    workers: list[Worker] = field(default_factory=list)
    size: int = 0

    def open(self, neighbours: Sequence[Sequence[int]], size: int = 1000) -> Plan:
        self.size = size
        self.plan = self.kind.create(neighbours, size, np.float64, np.zeros(size))
        return self.plan

    def need_processes(self) -> None:
        if not self.kind.processes:
            raise Skipped("its clients are threads: none can be stopped or killed alone")

    def start(self, i: int, task: Task) -> Worker:
        self.workers.append(Worker(self.plan, i, task, self.kind.processes))
        return self.workers[-1]

    def results(self, task: Callable[[int], Task], clients: Sequence[int]) -> list[Any]:
        """Let these clients do their tasks side by side; what each returns."""
        workers = [self.start(i, task(i)) for i in clients]
        return [worker.hear() for worker in workers]

    def close(self) -> None:
        if not hasattr(self, "plan"):
            return
        self.plan.stop()
        for worker in self.workers:
            worker.end()
        self.plan.close()


def full(crew: Participants, value: float) -> Vector:
    return np.full(crew.size, float(value))


def value_of(x: Vector) -> float:
    """The one number that fills x; Failed if it is torn. Every element is looked at."""
    low, high = float(x.min()), float(x.max())
    if low != high:
        raise Failed(f"torn: elements from {low} to {high} in one model")
    return low


def newest(wire: Transport, k: int) -> tuple[float, int]:
    """Client k's newest model (its one number) and version."""
    seen = wire.read(k, lambda x, version: (value_of(x), version))
    if seen is None:
        raise Failed(f"no model of client {k}")
    return seen


def until(true: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + LIMIT
    while not true():
        if time.monotonic() > end:
            raise Failed(f"{what}: not within {LIMIT:g} s")
        time.sleep(0.001)


def ring(n: int) -> list[tuple[int, ...]]:
    return [tuple(sorted({(i - 1) % n, (i + 1) % n} - {i})) for i in range(n)]
