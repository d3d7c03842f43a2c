"""A process that does nothing but fork clients: torch is imported once, and every fork is clean.

The fork server is forked from the engine before the engine has threads, and never has any itself, so a
client can be started (again) at any time. It watches its children through process descriptors and tells
the engine how each one ended. If the engine dies, by whatever signal, the kernel kills the fork server, and
with it the clients (PR_SET_PDEATHSIG): nothing stays behind.
"""

from __future__ import annotations

import ctypes
import gc
import io
import json
import logging
import os
import resource
import select
import signal
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn

from swiftfl.engines.live.local.own_files import reopen_files
from swiftfl.errors import UserError
from swiftfl.signals import leave_to_the_parent, signal_name

_log = logging.getLogger(__name__)
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_LARGEST = 1 << 20
_LONGEST_WORDS = 1000  # characters of the last line of a process that ended early
_PATIENCE = 5.0  # seconds for the fork server to end its clients and itself


@dataclass(frozen=True)
class Launch:
    """How a client starts: from x0 ("initial"), from a save ("save") or a neighbour's model ("model").

    `source` is the client whose save it is, with its incarnation and step, or the neighbour. `terms` are
    packed (`engines.terms`); a client with an `assignment` selects them itself. A client that `joins` a run
    in rounds takes no step before it was told from which round it takes part.
    """

    client: int
    incarnation: int = 0
    how: str = "initial"
    c: int = 1
    source: tuple[int, ...] = ()
    terms: list[Any] = field(default_factory=list)
    joins: bool = False
    assignment: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class Exit:
    """A client's process has ended, or could not be started (`failure`)."""

    client: int
    incarnation: int
    status: int
    failure: str = ""
    said: str = ""
    """The last line that it wrote before it could speak for itself."""

    def __str__(self) -> str:
        code = os.waitstatus_to_exitcode(self.status)
        how = self.failure or (f"killed by {signal_name(-code)}" if code < 0 else f"ended with code {code}")
        return f"{how}: {self.said}" if self.said else how


class FirstWords:
    """What processes write to standard error before they have a channel of their own to say it.

    The fork server keeps it, each process's in a file in memory, and reads it when the process has ended.
    """

    def __init__(self) -> None:
        self._files: dict[int, int] = {}  # by client

    def expect(self, client: int) -> None:
        """In the fork server, before it forks this client."""
        self._files[client] = os.memfd_create("swiftfl-words")

    def keep(self, client: int) -> int:
        """In the client's process: what it writes is kept from here on; the standard error that it had."""
        before = os.dup(2)
        os.dup2(self._files[client], 2)
        return before

    @staticmethod
    def let_go(before: int) -> None:
        """In the client's process: it speaks for itself, and what it wrote so far is shown."""
        sys.stderr.flush()
        said = os.pread(2, os.fstat(2).st_size, 0)
        os.ftruncate(2, 0)
        os.dup2(before, 2)
        os.close(before)
        with suppress(OSError):
            os.write(2, said)

    def take(self, client: int) -> str:
        """In the fork server, when the client has ended: its last line, if there is one."""
        file = self._files.pop(client, None)
        if file is None:
            return ""
        text = os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace").strip()
        os.close(file)
        if text:
            _log.debug("client %d ended before it had a channel: %s", client, text)
        return " ".join(text.splitlines()[-1].split())[:_LONGEST_WORDS] if text else ""


class ForkServer:
    """The engine's handle: `work` is called in each client's process, and returns its exit code.

    With `words`, `work` says when the process writes into them and when no longer.
    """

    def __init__(self, work: Callable[[Launch], int], words: FirstWords | None = None) -> None:
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pids: dict[int, int] = {}
        self._ended: list[Exit] = []
        self.pid = fork_child()
        if self.pid == 0:
            self.socket.close()
            run_and_exit(lambda: _Server(theirs, work, words).run())
        theirs.close()
        self.alive = True
        _log.debug("fork server started as process %d", self.pid)

    def start(self, launch: Launch) -> None:
        self._send({"start": asdict(launch)})

    def kill(self, client: int) -> None:
        self._send({"kill": client})

    def _send(self, message: dict[str, Any]) -> None:
        """Send, and meanwhile take what the fork server says: it may wait for that with many clients."""
        packet = json.dumps(message).encode()
        poll = select.poll()
        poll.register(self.socket, select.POLLIN | select.POLLOUT)
        while self.alive:  # a fork server that is gone is noticed by `_receive`
            try:
                self.socket.send(packet, socket.MSG_DONTWAIT)
                return
            except BlockingIOError:
                poll.poll()
                self._receive()
            except OSError:
                return

    def ended(self) -> list[Exit]:
        """Who has ended since the last call; never waits."""
        self._receive()
        found, self._ended = self._ended, []
        return found

    def _receive(self) -> None:
        while self.alive:
            try:
                packet = self.socket.recv(_LARGEST, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                packet = b""
            if not packet:
                self.alive = False
                return
            message = json.loads(packet)
            if "pid" in message:
                self.pids[message["client"]] = message["pid"]
            else:
                self._ended.append(Exit(**message["ended"]))

    def close(self) -> None:
        """Kill whoever is left, and wait for the fork server's end; one that does not respond is killed."""
        self.socket.close()
        with suppress(ChildProcessError):
            if not self._ends_within(_PATIENCE):
                os.kill(self.pid, signal.SIGKILL)  # and with it, by the kernel, its clients
                os.waitpid(self.pid, 0)
        self.alive = False

    def _ends_within(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while os.waitpid(self.pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > end:
                return False
            time.sleep(0.005)
        return True


class _Server:
    """Inside the fork server."""

    def __init__(
        self, channel: socket.socket, work: Callable[[Launch], int], words: FirstWords | None
    ) -> None:
        self.channel, self.work, self.words = channel, work, words
        self.children: dict[int, tuple[Launch, int]] = {}  # process descriptor -> whose, process id
        self.poll = select.poll()
        self.poll.register(channel, select.POLLIN)

    def run(self) -> int:
        name_process("swiftfl-fork")
        leave_to_the_parent()
        use_plain_output()
        gc.freeze()
        while True:
            for descriptor, _ in self.poll.poll():
                if descriptor != self.channel.fileno():
                    self._reap(descriptor)
                    continue
                packet = self.channel.recv(_LARGEST)
                if not packet:
                    self._kill_all()
                    return 0
                self._obey(json.loads(packet))

    def _obey(self, message: dict[str, Any]) -> None:
        if "start" in message:
            given = message["start"]
            self._start(Launch(**{**given, "source": tuple(given["source"])}))
            return
        for launch, pid in self.children.values():
            if launch.client == message["kill"]:
                os.kill(pid, signal.SIGKILL)

    def _start(self, launch: Launch) -> None:
        try:
            if self.words is not None:
                self.words.expect(launch.client)
            pid = fork_child()
        except OSError as error:
            if self.words is not None:
                self.words.take(launch.client)
            self._say_ended(
                Exit(launch.client, launch.incarnation, 1 << 8, f"cannot be started: {error.strerror}")
            )
            return
        if pid == 0:
            self.channel.close()
            for descriptor in self.children:
                os.close(descriptor)
            run_and_exit(lambda: self.work(launch))
        descriptor = os.pidfd_open(pid)
        self.children[descriptor] = (launch, pid)
        self.poll.register(descriptor, select.POLLIN)
        self._say({"client": launch.client, "pid": pid})

    def _reap(self, descriptor: int) -> None:
        launch, pid = self.children.pop(descriptor)
        self.poll.unregister(descriptor)
        os.close(descriptor)
        _, status = os.waitpid(pid, 0)
        said = "" if self.words is None else self.words.take(launch.client)
        self._say_ended(Exit(launch.client, launch.incarnation, status, said=said))

    def _say_ended(self, ended: Exit) -> None:
        self._say({"ended": asdict(ended)})

    def _say(self, message: dict[str, Any]) -> None:
        with suppress(OSError):  # an engine that is gone: the next packet is empty
            self.channel.send(json.dumps(message).encode())

    def _kill_all(self) -> None:
        for _, pid in self.children.values():
            os.kill(pid, signal.SIGKILL)
        for _, pid in self.children.values():
            os.waitpid(pid, 0)


def name_process(name: str) -> None:
    """What ps and top call this process."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def use_plain_output() -> None:
    """Print to the process's own output. A notebook's needs threads of the kernel, which a fork has not."""
    if not isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if not isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = os.fdopen(2, "w", closefd=False)


def fork_child() -> int:
    """Fork; the child dies with its parent, and has files of its own to read."""
    parent = os.getpid()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads: numpy's idle ones do not count, others we do not have
        pid = os.fork()
    if pid == 0:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
        reopen_files()
    return pid


def run_and_exit(work: Callable[[], int]) -> NoReturn:
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


def allow_descriptors(count: int) -> None:
    """Raise the soft limit of open files, if that is needed; the hard one is the machine's."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= count:
        return
    if hard != resource.RLIM_INFINITY and hard < count:
        raise UserError(f"the run needs {count} open files, and this machine allows {hard} (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
