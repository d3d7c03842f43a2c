"""Ranks of MPI that share their imports, where a machine has more of them than processors.

Each rank imports torch, which takes a processor for seconds: of many ranks on few processors that is most of
the start. Here the first rank of the machine forks a server, which imports what a run needs, once, and then
forks a process per rank, which runs the command: with that rank's arguments, environment, folder, output and
processors. The process that the launcher has started stands in for it: it passes signals on, and ends as it
ends. A rank that differs from the server (`_kind`), and any whose server does not answer, imports by itself.

SWIFTFL_IMPORTS says otherwise: `apart`, every rank by itself; `shared`, also where each has a processor.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import importlib
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from dataclasses import dataclass
from typing import Any, NoReturn

from swiftfl.signals import STOPPING, end_by, hear_of_children, pass_on
from swiftfl.transports.ranks import local_rank_here, local_size_here

IMPORTS, APART, SHARED = "SWIFTFL_IMPORTS", "apart", "shared"
_NAMESPACE = "PMIX_NAMESPACE"  # of a job, as Open MPI's launcher names it
_OF_ONE_RANK = ("OMPI_", "PMIX_", "PRTE_")  # how variables begin that differ between ranks
_COMMANDS = ("run", "resume")
_SECONDS = 10.0  # for which a rank looks for the server: it listens before it imports anything
_FILES = 4  # that a rank has to give away: input, output, errors, and its folder
_LARGEST = 1 << 20
_PASSED_ON = (*STOPPING, signal.SIGUSR2, signal.SIGQUIT)
_IMPORTED = (
    "torch",
    "scipy.sparse.csgraph",
    "swiftfl.cli.main",
    "swiftfl.api.own_experiment",
    "swiftfl.experiment.config_file",
    "swiftfl.experiment.run",
    "swiftfl.experiment.runners.mpi",
)
"""What a run imports, but for MPI itself, which is started by being imported."""


def share_start() -> None:
    """Return where the command is to be run; a process that stands in for another one ends here."""
    address = _address()
    if address is None:
        return
    if local_rank_here() == 0:
        try:
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            listening.bind(address)
            listening.listen(local_size_here() or 1)
        except OSError:
            return
        if os.fork() == 0:
            _ImportServer(listening).serve()
            return  # in a rank's process
        listening.close()
    channel = _connected(address)
    if channel is None:
        return
    with channel:
        try:
            folder = os.open(".", os.O_PATH)
            try:
                socket.send_fds(channel, [json.dumps(_told()).encode()], [0, 1, 2, folder])
            finally:
                os.close(folder)
            started = channel.recv(_LARGEST) == b"started"
        except OSError:
            return
        if started:
            _stand_in(channel)


def _address() -> str | None:
    """Where the server of this job on this machine listens; None if imports are not shared."""
    count, namespace = local_size_here(), os.environ.get(_NAMESPACE)
    if (
        not sys.platform.startswith("linux")
        or count is None
        or namespace is None
        or local_rank_here() is None
    ):
        return None
    wish = os.environ.get(IMPORTS)
    if wish == APART or (count <= (os.cpu_count() or 1) and wish != SHARED):
        return None
    if sys.argv[1:2] not in ([each] for each in _COMMANDS):
        return None
    about = sorted(f"{k}={v}" for k, v in os.environ.items() if k.startswith("PMIX_SERVER_URI"))
    return "\0swiftfl-" + hashlib.sha256("\n".join((namespace, *about)).encode()).hexdigest()


def _connected(address: str) -> socket.socket | None:
    """A channel to the server, if it is this user's."""
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    until = time.monotonic() + _SECONDS
    while True:
        try:
            channel.connect(address)
            break
        except OSError:
            if time.monotonic() > until:
                channel.close()
                return None
            time.sleep(0.02)
    if _user_of(channel) != os.getuid():
        channel.close()
        return None
    return channel


def _user_of(channel: socket.socket) -> int:
    """Who is at the other end. Everybody on a machine may connect to such an address."""
    _, user, _ = struct.unpack("3i", channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(user)


# --- a rank and its stand-in -------------------------------------------------------------------------


def _told() -> dict[str, Any]:
    """What the process that runs this rank's command has to know."""
    umask = os.umask(0)
    os.umask(umask)
    return {
        "kind": _kind(),
        "rank": local_rank_here(),
        "argv": sys.argv,
        "environment": dict(os.environ),
        "umask": umask,
        "processors": sorted(os.sched_getaffinity(0)),
    }


def _kind() -> list[Any]:
    """What cannot be changed in a process any more, or only before it imports anything."""
    ignored = [int(number) for number in _PASSED_ON if signal.getsignal(number) is signal.SIG_IGN]
    screens = [os.isatty(file) for file in (0, 1, 2)]
    shared = {k: v for k, v in os.environ.items() if not k.startswith(_OF_ONE_RANK)}
    options = [*sys.flags], sys.warnoptions, sorted(map(str, sys._xoptions.items()))
    return json.loads(json.dumps([sys.executable, sys.path, options, ignored, screens, shared]))  # type: ignore[no-any-return]


def _stand_in(channel: socket.socket) -> NoReturn:
    """Pass signals on to the process that runs the command, and end as it ends."""

    def send(number: int) -> None:
        with contextlib.suppress(OSError):
            channel.send(str(number).encode())

    pass_on(_PASSED_ON, send)
    with contextlib.suppress(OSError):
        said = channel.recv(_LARGEST)
        code = os.waitstatus_to_exitcode(int(said)) if said else -signal.SIGKILL
        if code >= 0:
            os._exit(code)
        end_by(-code)
    os._exit(1)


# --- the server --------------------------------------------------------------------------------------


@dataclass
class _Rank:
    """A rank: its channel, and its process once there is one."""

    channel: socket.socket
    pid: int = 0
    descriptor: int = -1


class _ImportServer:
    """It imports once, and then forks whoever asks; it ends when the last one has ended."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening, self._kind, self._pid = listening, _kind(), os.getpid()
        self._ranks: dict[int, _Rank] = {}  # by channel, and by process descriptor
        self._poll = select.poll()
        self._come, self._expected = 0, local_size_here()

    def serve(self) -> None:
        """Return in each rank's process; the server's own never does."""
        try:
            os.setsid()  # a signal to the first rank's group is not for it,
            self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)  # nor is one to the whole job
            hear_of_children()
            null = os.open(os.devnull, os.O_RDWR)
            for file in (0, 1, 2):
                os.dup2(null, file)
            os.close(null)
            _import()
            gc.collect()
            gc.freeze()  # pages that nobody writes stay shared
            self._poll.register(self._listening, select.POLLIN)
            while self._ranks or self._come != self._expected:
                events = self._poll.poll(None if self._ranks else 1000 * _SECONDS)
                if not events:
                    break
                for file, _ in events:
                    if self._happens(file):
                        return
        except BaseException:
            if os.getpid() != self._pid:
                raise
        os._exit(0)

    def _happens(self, file: int) -> bool:
        """Whether this is now the process of a rank."""
        if file == self._listening.fileno():
            channel, _ = self._listening.accept()
            if _user_of(channel) == os.getuid():
                self._come += 1
                self._ranks[channel.fileno()] = _Rank(channel)
                self._poll.register(channel, select.POLLIN)
        elif file in self._ranks:  # else it went with another event of this round
            rank = self._ranks[file]
            if file == rank.descriptor:
                self._over(rank)
            elif rank.pid == 0:
                return self._begin(rank)
            else:
                self._pass_on(rank)
        return False

    def _begin(self, rank: _Rank) -> bool:
        from swiftfl.engines.live.local.forkserver import fork_child

        files: list[int] = []
        told: dict[str, Any] = {}
        try:
            packet, files, _, _ = socket.recv_fds(rank.channel, _LARGEST, _FILES)
            told = json.loads(packet) if packet else {}
            if told.get("kind") == self._kind and len(files) == _FILES and _is_there(rank.channel):
                rank.pid = fork_child()
                if rank.pid:
                    self._watch(rank)
        except OSError:
            pass
        if os.getpid() != self._pid:
            self._become(told, files)
            return True
        for file in files:
            os.close(file)
        with contextlib.suppress(OSError):
            rank.channel.send(b"started" if rank.pid else b"alone")
        if rank.pid == 0:
            self._forget(rank)
        return False

    def _watch(self, rank: _Rank) -> None:
        """Hear of the end of a rank's process. One that cannot be watched goes: it has done nothing yet."""
        try:
            rank.descriptor = os.pidfd_open(rank.pid)
        except OSError:
            os.kill(rank.pid, signal.SIGKILL)
            os.waitpid(rank.pid, 0)
            rank.pid = 0
            return
        self._ranks[rank.descriptor] = rank
        self._poll.register(rank.descriptor, select.POLLIN)

    def _become(self, told: dict[str, Any], files: list[int]) -> None:
        """In the process of a rank: be as the process is that stands in for it."""
        import numpy as np

        from swiftfl.engines.live.local.forkserver import name_process

        self._listening.close()
        for file, rank in self._ranks.items():
            rank.channel.close()
            if file == rank.descriptor:
                os.close(file)
        for k, file in enumerate(files[:3]):
            os.dup2(file, k)
        os.fchdir(files[3])
        for file in files:
            os.close(file)
        os.environ.clear()
        os.environ.update(told["environment"])
        os.umask(told["umask"])
        with contextlib.suppress(OSError):  # of a group that may not use them
            os.sched_setaffinity(0, told["processors"])
        sys.argv[:] = told["argv"]
        np.random.seed()  # noqa: NPY002 (else all ranks would draw the same, where nobody gives a seed)
        name_process(f"swiftfl-{told['rank']}")
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def _pass_on(self, rank: _Rank) -> None:
        """A signal for the process; or its stand-in is gone, and it must not stay behind."""
        try:
            said = rank.channel.recv(_LARGEST)
        except OSError:
            said = b""
        os.kill(rank.pid, int(said) if said else signal.SIGKILL)
        if not said:
            self._poll.unregister(rank.channel)

    def _over(self, rank: _Rank) -> None:
        _, status = os.waitpid(rank.pid, 0)
        with contextlib.suppress(OSError):
            rank.channel.send(str(status).encode())
        self._forget(rank)

    def _forget(self, rank: _Rank) -> None:
        for file in (rank.channel.fileno(), rank.descriptor):
            if self._ranks.pop(file, None) is not None:
                with contextlib.suppress(KeyError):  # a stand-in that is gone is not looked at any more
                    self._poll.unregister(file)
        rank.channel.close()
        if rank.descriptor >= 0:
            os.close(rank.descriptor)


def _is_there(channel: socket.socket) -> bool:
    """Whether the other end is still open: it has nothing more to say yet."""
    try:
        return channel.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return True


def _import() -> None:
    for name in _IMPORTED:
        importlib.import_module(name)
