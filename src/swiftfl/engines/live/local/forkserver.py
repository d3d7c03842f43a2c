"""A process that does nothing but fork clients: torch is imported once, and every fork is clean.

The nursery is forked from the engine before the engine has threads, and never has any itself, so a
client can be started (again) at any time. It watches its children through process descriptors and tells
the engine how each one ended. If the engine dies, by whatever signal, the kernel kills the nursery, and
with it the clients (PR_SET_PDEATHSIG): nothing stays behind.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_LARGEST = 1 << 20


@dataclass(frozen=True)
class Launch:
    """How a client starts: from x0 ("initial"), from its save ("saved") or a neighbour's model ("model").

    `terms` are [scale, own, [[k, coefficient], ...]]. One that `joins` a run in rounds takes no step
    before it was told from which round it takes part.
    """

    client: int
    life: int = 0
    how: str = "initial"
    c: int = 1
    source: tuple[int, ...] = ()
    terms: list[Any] = field(default_factory=list)
    joins: bool = False


@dataclass(frozen=True)
class Exit:
    """A client's process is no more."""

    client: int
    life: int
    status: int

    def __str__(self) -> str:
        code = os.waitstatus_to_exitcode(self.status)
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


class ForkServer:
    """The engine's handle: `live` is called in each client's process."""

    def __init__(self, live: Callable[[Launch], int]) -> None:
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pids: dict[int, int] = {}
        self.pid = _fork()
        if self.pid == 0:
            self.socket.close()
            _run(lambda: _Keeper(theirs, live).run())
        theirs.close()
        self.alive = True

    def start(self, birth: Launch) -> None:
        self._send({"start": asdict(birth)})

    def kill(self, client: int) -> None:
        self._send({"kill": client})

    def _send(self, message: dict[str, Any]) -> None:
        with suppress(OSError):  # a nursery that is gone is noticed by `ended`
            self.socket.send(json.dumps(message).encode())

    def ended(self) -> list[Exit]:
        """Who has ended since the last call; never waits."""
        found = []
        while self.alive:
            try:
                packet = self.socket.recv(_LARGEST, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except OSError:
                packet = b""
            if not packet:
                self.alive = False
                break
            message = json.loads(packet)
            if "pid" in message:
                self.pids[message["client"]] = message["pid"]
            else:
                found.append(Exit(**message["ended"]))
        return found

    def close(self) -> None:
        """Kill whoever is left, and wait for the nursery's end."""
        self.socket.close()
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        self.alive = False


class _Keeper:
    """Inside the nursery."""

    def __init__(self, line: socket.socket, live: Callable[[Launch], int]) -> None:
        self.line, self.live = line, live
        self.children: dict[int, tuple[Launch, int]] = {}  # process descriptor -> whose, process id
        self.poll = select.poll()
        self.poll.register(line, select.POLLIN)

    def run(self) -> int:
        name_process("swiftfl-nursery")
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # the engine decides
        gc.freeze()
        while True:
            for descriptor, _ in self.poll.poll():
                if descriptor != self.line.fileno():
                    self._reap(descriptor)
                    continue
                packet = self.line.recv(_LARGEST)
                if not packet:
                    self._kill_all()
                    return 0
                self._obey(json.loads(packet))

    def _obey(self, message: dict[str, Any]) -> None:
        if "start" in message:
            given = message["start"]
            self._fork(Launch(**{**given, "source": tuple(given["source"])}))
            return
        for birth, pid in self.children.values():
            if birth.client == message["kill"]:
                os.kill(pid, signal.SIGKILL)

    def _fork(self, birth: Launch) -> None:
        pid = _fork()
        if pid == 0:
            self.line.close()
            for descriptor in self.children:
                os.close(descriptor)
            _run(lambda: self.live(birth))
        descriptor = os.pidfd_open(pid)
        self.children[descriptor] = (birth, pid)
        self.poll.register(descriptor, select.POLLIN)
        self._tell({"client": birth.client, "pid": pid})

    def _reap(self, descriptor: int) -> None:
        birth, pid = self.children.pop(descriptor)
        self.poll.unregister(descriptor)
        os.close(descriptor)
        _, status = os.waitpid(pid, 0)
        self._tell({"ended": asdict(Exit(birth.client, birth.life, status))})

    def _tell(self, message: dict[str, Any]) -> None:
        with suppress(OSError):  # an engine that is gone: the next packet is empty
            self.line.send(json.dumps(message).encode())

    def _kill_all(self) -> None:
        for _, pid in self.children.values():
            os.kill(pid, signal.SIGKILL)
        for _, pid in self.children.values():
            os.waitpid(pid, 0)


def name_process(name: str) -> None:
    """What ps and top call this process."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def _fork() -> int:
    """Fork; the child dies with its parent."""
    parent = os.getpid()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads: numpy's idle ones do not count, others we do not have
        pid = os.fork()
    if pid == 0:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
    return pid


def _run(work: Callable[[], int]) -> NoReturn:
    """Do the work of a forked process and end it, without what its parent had planned for its own end."""
    code = 1
    try:
        code = work()
    except BaseException:
        text = "".join(traceback.format_exception(*sys.exc_info())[-4:])
        with suppress(OSError):
            os.write(2, text.encode())
    finally:
        os._exit(code)
