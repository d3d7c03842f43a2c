"""A process that evaluates models while the ranks train: of low priority, on whatever processor is free.

It is forked from the first rank, so that it has the test data without loading it, and before that rank's
threads start. Models reach it through memory that both share (`SnapshotMemory`), and its answers come back
over a socket: the rank itself spends no time on evaluations. If it fails, the run goes on without them.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from swiftfl.engines.live.local.forkserver import fork_child, run_and_exit
from swiftfl.engines.threads import one_thread
from swiftfl.signals import leave_to_the_parent
from swiftfl.transports.messages.snapshots import SnapshotMemory, Snapshots
from swiftfl.transports.messages.transport import MessageTransport
from swiftfl.vector import Vector

_LOWEST = 19
_LARGEST = 1 << 16
_LATEST = 5.0  # seconds in which a client's model has to come
log = logging.getLogger(__name__)

Evaluate = Callable[[list[Vector], list[float]], dict[str, Any]]
"""From models and the epochs of all clients to numbers (anything that JSON can hold)."""


class Moment(Protocol):
    """What an evaluation is said to be of: the run as it is when the models are asked for."""

    @property
    def iteration(self) -> int: ...

    @property
    def now(self) -> float: ...

    def epochs(self) -> list[float]: ...


class Evaluations:
    """Asks for models, has them evaluated when they have come, and keeps the numbers until they are taken."""

    def __init__(self, n: int, x0: Vector, evaluate: Evaluate) -> None:
        memory = SnapshotMemory(n, x0)
        self._process = EvaluationProcess(memory, evaluate)
        self._snapshots = Snapshots(memory)
        self._asked: tuple[float, dict[str, Any]] | None = None  # when, and of what, while models come

    def request(self, transport: MessageTransport, moment: Moment) -> bool:
        """Begin a new evaluation, unless one is under way."""
        if self._asked is not None or self._process.busy:
            return False
        about = {"iteration": moment.iteration, "time": moment.now, "epochs": moment.epochs()}
        self._about = about
        self._snapshots.request(transport)  # first: another thread ticks, and must not see the last models
        self._asked = (time.monotonic(), about)
        return True

    def tick(self, transport: MessageTransport, living: Sequence[int]) -> None:
        """Look whether all models have come; a client that sends none in time is left out."""
        if self._asked is None:
            return
        come = [k for k in self._snapshots.come(transport) if k in living]
        if len(come) >= len(living) or (come and time.monotonic() - self._asked[0] > _LATEST):
            self._process.epochs = self._asked[1]["epochs"]
            self._asked = None
            self._process.ask(come)

    def take(self) -> dict[str, Any] | None:
        """The numbers with "iteration", "time" and "epochs" of their moment; RuntimeError if it failed."""
        answer = self._process.take() if self._process.busy else None
        return None if answer is None else {**self._about, **answer}

    def close(self) -> None:
        self._process.close()


class EvaluationProcess:
    """The rank's handle; one evaluation at a time."""

    def __init__(self, memory: SnapshotMemory, evaluate: Evaluate) -> None:
        self.busy = False
        self.epochs: list[float] = []  # of all clients, when it is asked next
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._pid = fork_child()
        if self._pid == 0:
            self._socket.close()
            run_and_exit(lambda: _serve(theirs, memory, evaluate))
        theirs.close()
        self._socket.setblocking(False)

    def ask(self, clients: Sequence[int]) -> None:
        """Evaluate the models of these clients, as they are in the shared memory now."""
        with contextlib.suppress(OSError):  # it has ended, which `take` will find out
            self._socket.send(json.dumps([list(clients), self.epochs]).encode())
        self.busy = True

    def take(self) -> dict[str, Any] | None:
        """The numbers, when they are there; raises RuntimeError if it has failed."""
        try:
            packet = self._socket.recv(_LARGEST)
        except BlockingIOError:
            return None
        except OSError:
            packet = b""
        if not packet:
            raise RuntimeError("the evaluation process has ended")
        self.busy = False
        answer: dict[str, Any] = json.loads(packet)
        if "error" in answer:
            raise RuntimeError(f"the evaluation process failed: {answer['error']}")
        return answer

    def close(self) -> None:
        """End it, also in the middle of an evaluation. May be called again."""
        if self._pid == 0:
            return
        self._socket.close()
        with contextlib.suppress(OSError):
            os.kill(self._pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        self._pid = 0


def _give_way() -> None:
    """Only on processors that nobody else wants. A nice process still keeps one to the end of its time slice
    when a rank wakes up; an idle one (Linux) leaves it at once."""
    os.nice(_LOWEST)
    if hasattr(os, "SCHED_IDLE"):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _serve(line: socket.socket, memory: SnapshotMemory, evaluate: Evaluate) -> int:
    leave_to_the_parent()
    _give_way()
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))  # MPI binds a rank to one processor
    one_thread()
    while packet := line.recv(_LARGEST):
        try:
            clients, epochs = json.loads(packet)
            answer = evaluate(memory.models(clients), epochs)
        except Exception as error:
            log.debug("an evaluation failed", exc_info=True)
            answer = {"error": f"{type(error).__name__}: {error}"[:1000]}
        line.send(json.dumps(answer).encode())
    return 0
