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

from swiftfl.transports.base import Transport, TransportEntry, TransportPlan
from swiftfl.transports.codec import Identity, MakeCodec
from swiftfl.vector import Vector

LIMIT = 30.0
"""Seconds after which something that should have happened counts as blocked: generous on purpose."""
ENOUGH, MORE_SECONDS = 3, 10.0
"""New values that must be seen, and how much longer than usual a busy machine may take for them."""

Report = Callable[[object], None]
Task = Callable[[Transport, Report], object]


class Failed(Exception):  # noqa: N818
    """The transport did not keep a promise; the text says which."""


class Skipped(Exception):  # noqa: N818
    """The experiment makes no sense with this transport."""


class ClientTask:
    """A client at work on a task; what it says (small JSON values) can be heard, its result last."""

    def __init__(self, plan: TransportPlan, i: int, task: Task, processes: bool) -> None:
        self.i = i
        self.heard: queue.Queue[str] = queue.Queue()
        self.process: Any = None
        if not processes:
            threading.Thread(target=_work, args=(plan, i, task, self.heard.put), daemon=True).start()
            return
        self.receiver, sender = mp.Pipe(duplex=False)
        context = mp.get_context("fork")
        self.process = context.Process(target=_in_process, args=(plan, i, task, sender), daemon=True)
        self.process.start()
        sender.close()

    def answer(self) -> Any:
        """The next thing that it says; Failed if that takes too long or it fell over."""
        message = json.loads(self._next(LIMIT))
        if "error" in message:
            raise Failed(f"client {self.i}: {message['error']}")
        return message["value"]

    def _next(self, limit: float) -> str:
        try:
            if self.process is None:
                return self.heard.get(timeout=limit)
            if self.receiver.poll(limit):
                return self.receiver.recv_bytes().decode()
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
            self.receiver.close()


def _in_process(plan: TransportPlan, i: int, task: Task, sender: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _work(plan, i, task, lambda text: sender.send_bytes(text.encode()))
    sender.close()


def _work(plan: TransportPlan, i: int, task: Task, send: Callable[[str], None]) -> None:
    try:
        transport = plan.connect(i)
        result = task(transport, lambda value: send(json.dumps({"value": value})))
        transport.close()
        send(json.dumps({"value": result}))
    except Exception as error:
        send(json.dumps({"error": f"{type(error).__name__}: {error}"}))


@dataclass
class Participants:
    """A transport for an experiment, its clients, and their end afterwards."""

    entry: TransportEntry
    plan: TransportPlan = field(init=False)
    workers: list[ClientTask] = field(default_factory=list)
    size: int = 0

    def open(
        self, neighbours: Sequence[Sequence[int]], size: int = 1000, codec: MakeCodec = Identity
    ) -> TransportPlan:
        self.size = size
        self.plan = self.entry.make(neighbours, np.zeros(size), codec, in_rounds=False)
        return self.plan

    def need_processes(self) -> None:
        if not self.entry.processes:
            raise Skipped("its clients are threads: none can be stopped or killed alone")

    def start(self, i: int, task: Task) -> ClientTask:
        self.workers.append(ClientTask(self.plan, i, task, self.entry.processes))
        return self.workers[-1]

    def results(self, task: Callable[[int], Task], clients: Sequence[int]) -> list[Any]:
        """Let these clients do their tasks side by side; what each returns."""
        workers = [self.start(i, task(i)) for i in clients]
        return [worker.answer() for worker in workers]

    def close(self) -> None:
        if not hasattr(self, "plan"):
            return
        self.plan.stop()
        for worker in self.workers:
            worker.end()
        self.plan.close()


def full(group: Participants, value: float) -> Vector:
    return np.full(group.size, float(value))


def value_of(x: Vector) -> float:
    """The one number that fills x; Failed if it is torn. Every element is looked at."""
    low, high = float(x.min()), float(x.max())
    if low != high:
        raise Failed(f"torn: elements from {low} to {high} in one model")
    return low


def newest(transport: Transport, k: int) -> tuple[float, int]:
    """Client k's newest model (its one number) and version."""
    seen = transport.read(k, lambda x, version: (value_of(x), version))
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
