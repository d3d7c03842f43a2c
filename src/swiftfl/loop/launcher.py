"""`swiftfl launch`: starts one process per client, and supervises them as a live run's supervisor does.

The launcher takes part in no step, and nobody waits for it but at the beginning (everybody starts from the
first client's model) and in `peer.consensus()`. A client that ends without success is lost: the others keep
its weight for themselves, coefficients are renewed among them, and it is started again if that is allowed; it
then begins with the newest model of a neighbour.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from swiftfl.engines.live.local.control import ControlChannel
from swiftfl.engines.live.options import LiveOptions
from swiftfl.engines.live.status import FINISHED, READY, RUNNING, StatusTable
from swiftfl.engines.live.supervisor import Supervisor
from swiftfl.engines.terms import ALONE, Terms, pack_terms
from swiftfl.loop.federation import Federation
from swiftfl.loop.launched import send, send_with_file
from swiftfl.loop.meeting import Meeting
from swiftfl.loop.processes import Child, ChildProcesses, Say
from swiftfl.loop.recorded import LaunchRecord
from swiftfl.signals import signal_name, taken_by
from swiftfl.transports.base import Observer
from swiftfl.transports.shared_memory import SharedMemory
from swiftfl.vector import Vector

_log = logging.getLogger(__name__)
_TICK = 0.05
_NOTICE_SECONDS = 0.5  # within which every client has heard of something
_PATIENCE = 10.0  # seconds to end after a signal was passed on


@dataclass(frozen=True)
class LaunchOptions:
    """What does not change what is trained."""

    restarts: int = 3
    journal: Path | None = None
    out: Path | None = None
    """A new folder, for whoever watches."""


class Launcher:
    """One launch; `run` gives its exit code."""

    def __init__(
        self,
        federation: Federation,
        command: Sequence[str],
        out: Say,
        err: Say,
        options: LaunchOptions = LaunchOptions(),
    ) -> None:
        self.federation, self.n, self._say = federation, federation.n, err
        self._journal = options.journal
        self.status, self._status_file = StatusTable.in_file(self.n)
        setup = federation.setup()
        live = LiveOptions(restart_lost=options.restarts > 0, most_restarts=options.restarts)
        self.supervisor = Supervisor(setup, live, self, 0.0, _NOTICE_SECONDS, self.status)
        self.setup, self.network = setup, self.supervisor.network
        self.terms = [Terms(w) for w in setup.weights]
        self._record = self._begin_record(options.out, command)
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(self.n)]
        self._theirs = [end for _, end in pairs]
        self._channel = ControlChannel([ours for ours, _ in pairs], self.status, setup.algorithm.in_rounds)
        self.processes = ChildProcesses(command, self.n, out, err)
        self._incarnations = [0] * self.n
        self._hellos: dict[int, dict[str, Any]] = {}  # who waits to be connected, and its model's shape
        self._first: int | None = None  # who was asked for the first model
        self._about: dict[str, Any] = {}  # the shape of everybody's model
        self._plan: SharedMemory | None = None
        self._observer: Observer | None = None
        self._connected: set[int] = set()
        self._meeting = Meeting(self._say)
        self._lost: dict[int, str] = {}
        self._signal: int | None = None
        self._signalled_at = 0.0

    def _begin_record(self, out: Path | None, command: Sequence[str]) -> LaunchRecord | None:
        """Before there is anything else to close: a folder may be refused."""
        if out is None:
            return None
        try:
            return LaunchRecord(out, self.federation, command, self.supervisor, self.neighbours(), self._say)
        except BaseException:
            os.close(self._status_file)
            raise

    # --- the whole launch ----------------------------------------------------------------------

    def run(self) -> int:
        """Start everybody, and supervise them until all have ended."""
        with taken_by(self._take_signal):
            try:
                for i in range(self.n):
                    self._start(i)
                while self.living:
                    self._tick()
            finally:
                self._close()
        self._say(self._summary())
        if self._signal is not None:
            return 128 + self._signal
        return 1 if self._lost else 0

    @property
    def living(self) -> set[int]:
        return set(self.processes.children)

    def _take_signal(self, number: int, frame: FrameType | None) -> None:
        """Passed on; the second one is not awaited."""
        self.processes.signal(number if self._signal is None else signal.SIGKILL)
        if self._signal is None:
            self._signal, self._signalled_at = number, time.monotonic()

    def _tick(self) -> None:
        for child, request, file in self.processes.look(_TICK):
            self._serve(child, request, file)
        for i, message in self._channel.received():
            self._say(f"swiftfl: client {i}: {message.get('warning') or message.get('error')}")
        for child, code in self.processes.ended():
            self._ended(child.client, code)
        for i in sorted(self._hellos):
            self._connect(i)
        for i in [i for i in self.supervisor.joining if self._is_ready(i)]:
            self._join(i)
        self._channel.deliver(self.living)
        self._hold_meeting()
        if self._record is not None:
            self._record.tick()
        if self._signal is not None and time.monotonic() - self._signalled_at > _PATIENCE:
            self.processes.signal(signal.SIGKILL)

    def _summary(self) -> str:
        well = self.n - len(self._lost)
        parts = [
            f"all {self.n} clients ended well" if not self._lost else f"{well} of {self.n} clients ended well"
        ]
        parts += [f"client {i} {reason}" for i, reason in sorted(self._lost.items())]
        if restarts := sum(self.supervisor.restarts):
            parts.append(f"{restarts} restart{'s' if restarts > 1 else ''}")
        return "swiftfl: " + "; ".join(parts)

    def _close(self) -> None:
        self.processes.close()
        if self._record is not None:
            self._record.close(self._lost)
        for part in (self._observer, self._plan, self._channel):
            if part is not None:
                part.close()
        for end in self._theirs:
            end.close()
        os.close(self._status_file)

    # --- starts and ends -----------------------------------------------------------------------

    def _start(self, i: int) -> None:
        told = {
            "status": self._status_file,
            "control": self._theirs[i].fileno(),
            "federation": self.federation.pack(),
            "journal": None if self._journal is None else str(self._journal),
        }
        self.processes.start(i, self._incarnations[i], told, [self._status_file, self._theirs[i].fileno()])

    def _ended(self, i: int, code: int) -> None:
        self._hellos.pop(i, None)
        self._meeting.leave(i)
        if self._first == i and self._plan is None:
            self._first = None
        if code == 0:
            if self.status.phase(i) != FINISHED and self.living:
                self.supervisor.lose(i, "ended without having trained")  # the others need not keep its model
            return
        reason = f"was killed by {signal_name(-code)}" if code < 0 else f"ended with code {code}"
        restart = (
            self._signal is None
            and bool(self.living)
            and i in self._connected
            and self.supervisor.may_restart(i)
        )
        _log.debug("client %d %s; started again: %s", i, reason, restart)
        if self._signal is None:
            self._say(f"swiftfl: client {i} {reason}" + ("; it is started again" if restart else ""))
        self.supervisor.lose(i, reason)
        if not restart:
            self._lost[i] = reason
            return
        self.supervisor.restarts[i] += 1
        self._incarnations[i] += 1
        self._connected.discard(i)
        self.supervisor.joining.add(i)
        self._start(i)

    # --- requests ------------------------------------------------------------------------------

    def _serve(self, child: Child, request: dict[str, Any], file: int | None) -> None:
        i = child.client
        if "hello" in request:
            self._hellos[i] = request["hello"]
        elif "x0" in request and file is not None:
            dtype = np.dtype(self._about["dtype"])
            x0 = np.frombuffer(os.pread(file, request["x0"] * dtype.itemsize, 0), dtype)
            self._make_memory(x0)
        elif "consensus" in request:
            self._meeting.come(i, float(request["consensus"]))
        if file is not None:
            os.close(file)

    def _connect(self, i: int) -> None:
        """Answer a client that has told of its model, if it can be answered already."""
        child, about = self.processes.children[i], self._hellos[i]
        if self._plan is None:
            if self._first is None and i == min(self.living):
                self._first, self._about = i, about
                send(child.requests, {"first": True})
            return
        del self._hellos[i]
        if wrong := self._other_model(about):
            send(child.requests, {"error": wrong})
            return
        joins = i in self.supervisor.joining
        answer = {
            "memory": self._plan.described(),
            "terms": pack_terms(ALONE if joins else self.terms[i]),
            "joins": joins,
            "facts": None if self._record is None else [str(self._record.facts), self.supervisor.origin],
            "source": self._source_of_model(i) if joins else None,
            "c": max(1, int(self.status.c(i))),
        }
        send_with_file(child.requests, answer, self._plan.fd)
        self._connected.add(i)

    def _other_model(self, about: dict[str, Any]) -> str | None:
        """What is wrong with a client's model, if it is not that of the first one."""
        if about["shape"] != self._about["shape"]:
            sizes = f"{about['size']} numbers against {self._about['size']}"
            return f"this client has another model than the first one ({sizes}): all must have the same"
        if about["frozen"] != self._about["frozen"]:
            return (
                "parameters that are frozen differ from those of the first client, and are not sent: "
                "load the same ones everywhere (the same file, or the same seed)"
            )
        return None

    def _make_memory(self, x0: Vector) -> None:
        neighbours = self.neighbours()
        self._plan = SharedMemory.create(neighbours, x0, in_rounds=self.setup.algorithm.in_rounds)
        self._observer = self._plan.observe()
        for i in set(range(self.n)) - self.living:
            self._plan.mark_gone(i)
        self.supervisor.start_clock()
        if self._record is not None:
            self._record.begin()

    def neighbours(self) -> list[tuple[int, ...]]:
        return [tuple(w.of) for w in self.setup.weights]

    def _source_of_model(self, i: int) -> int:
        """The most advanced neighbour that is there, or else any neighbour: its last model stays."""
        near = self.neighbours()[i]
        there = [k for k in near if k in self.living] or near
        return max(there, key=lambda k: (self.status.c(k), -k))

    def _is_ready(self, i: int) -> bool:
        return i in self._connected and self.status.phase(i) in (READY, RUNNING)

    def _join(self, i: int) -> None:
        """Client i is back: it is a neighbour again."""
        assert self._plan is not None
        from_round = self.supervisor.next_round(joining=i)
        self._plan.rejoin(i, from_round)
        self.supervisor.rejoin(i, from_round)

    def _hold_meeting(self) -> None:
        """Answer those who wait for consensus, if it is time."""
        expected = {i for i in self.living if self.status.phase(i) != FINISHED}
        members = self._meeting.due(expected)
        if not members or self._observer is None or self._plan is None:
            return
        total = np.zeros(self._plan.layout.size, dtype=np.float64)
        for i in members:
            self._observer.read(i, lambda x, version: np.add(total, x, out=total))
        mean = (total / len(members)).astype(self._plan.dtype)
        for i in members:
            send(self.processes.children[i].requests, {"clients": len(members)}, mean)

    # --- what the supervisor asks for ----------------------------------------------------------

    def mark_lost(self, i: int) -> None:
        if self._plan is not None:
            self._plan.mark_gone(i)

    def renew(self, from_round: int) -> None:
        """Send everybody who is there its new coefficients."""
        assert self.network is not None
        for i, (w, scale) in self.network.renew().items():
            self.terms[i] = Terms(w, scale, from_round)
            if i in self.living and i not in self.supervisor.joining:
                self._channel.send(i, self._incarnations[i], self.terms[i])

    def announce(self) -> int:
        raise AssertionError("coefficients are computed here")

    def switch(self, epoch: int, from_round: int) -> None:
        raise AssertionError("coefficients are computed here")

    def is_stopped(self, i: int) -> bool:
        return False

    def kill(self, i: int) -> None:
        """Only a loop knows how long its steps may take: nobody is ended for being slow."""
