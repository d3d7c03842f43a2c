"""The processes of a launch: started by exec, with their share of the machine, their output told apart."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from swiftfl.loop.launched import Told, receive
from swiftfl.loop.peer import LAUNCHED

_LONGEST = 1 << 16  # bytes of a line; a longer one is broken
_CHUNK = 1 << 16
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_OF_OTHERS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""With these torch.distributed would be started by libraries that find them."""
Say = Callable[[str], None]


class Lines:
    """Whole lines of what a client writes, each with the client's number in front.

    Of a line that was written over (progress bars return to its start) the last state is kept.
    """

    def __init__(self, client: int, say: Say) -> None:
        self._prefix, self._say, self._rest = f"[{client}] ", say, b""

    def feed(self, data: bytes) -> None:
        *whole, rest = (self._rest + data).split(b"\n")
        for line in whole:
            self._tell(line)
        while len(rest) > _LONGEST:
            self._tell(rest[:_LONGEST])
            rest = rest[_LONGEST:]
        self._rest = rest

    def end(self) -> None:
        if self._rest:
            self._tell(self._rest)
        self._rest = b""

    def _tell(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip("\r")
        self._say(self._prefix + text.rpartition("\r")[2])


@dataclass
class Child:
    """One process of a client."""

    client: int
    incarnation: int
    process: subprocess.Popen[bytes]
    requests: socket.socket
    pipes: dict[int, tuple[IO[bytes], Lines]] = field(default_factory=dict)


class ChildProcesses:
    """Starts processes, and tells what they ask for and how they end."""

    def __init__(self, command: Sequence[str], n: int, out: Say, err: Say) -> None:
        self._command, self._n, self._out, self._err = command, n, out, err
        self._selector = selectors.DefaultSelector()
        self._cores, self._gpus = sorted(os.sched_getaffinity(0)), gpus()
        self.children: dict[int, Child] = {}

    def start(self, i: int, incarnation: int, told: dict[str, Any], inherited: Sequence[int]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        about = Told(rank=i, incarnation=incarnation, requests=theirs.fileno(), **told)
        process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[*inherited, theirs.fileno()],
            env=self._environment(i) | {LAUNCHED: about.pack()},
            start_new_session=True,  # a Ctrl-C is passed on once, by us
        )
        theirs.close()
        if (cores := share(self._cores, i, self._n)) is not None:
            with suppress(ProcessLookupError):  # it may have ended already
                os.sched_setaffinity(process.pid, cores)
        child = self.children[i] = Child(i, incarnation, process, ours)
        assert process.stdout is not None
        assert process.stderr is not None
        for pipe, say in ((process.stdout, self._out), (process.stderr, self._err)):
            os.set_blocking(pipe.fileno(), False)
            child.pipes[pipe.fileno()] = (pipe, Lines(i, say))
            self._selector.register(pipe, selectors.EVENT_READ, child)
        self._selector.register(ours, selectors.EVENT_READ, child)

    def _environment(self, i: int) -> dict[str, str]:
        """One thread unless the user has said otherwise, lines at once, and one of the machine's GPUs."""
        env = {key: value for key, value in os.environ.items() if key not in _OF_OTHERS}
        env = dict.fromkeys(_THREADS, "1") | env | {"PYTHONUNBUFFERED": "1"}
        if self._gpus:
            env["CUDA_VISIBLE_DEVICES"] = self._gpus[i % len(self._gpus)]
        return env

    def look(self, seconds: float) -> list[tuple[Child, dict[str, Any], int | None]]:
        """Wait at most so long; passes on what was written, and gives the requests that have come."""
        requests = []
        for key, _ in self._selector.select(seconds):
            child: Child = key.data
            if key.fileobj is child.requests:
                found = receive(child.requests)
                if found is None:
                    self._selector.unregister(child.requests)
                else:
                    requests.append((child, *found))
            else:
                self._read(child, key.fd)
        return requests

    def _read(self, child: Child, descriptor: int) -> None:
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return
        child.pipes[descriptor][1].feed(data)
        if not data:
            self._close_pipe(child, descriptor)

    def _close_pipe(self, child: Child, descriptor: int) -> None:
        pipe, lines = child.pipes.pop(descriptor)
        self._selector.unregister(pipe)
        lines.end()
        pipe.close()

    def ended(self) -> list[tuple[Child, int]]:
        """The processes that have ended since the last call, with their exit codes; their output is told."""
        over = [(child, child.process.poll()) for child in list(self.children.values())]
        found = [(child, code) for child, code in over if code is not None]
        for child, _ in found:
            self._forget(child)
        return found

    def _forget(self, child: Child) -> None:
        del self.children[child.client]
        for descriptor in list(child.pipes):
            while descriptor in child.pipes and select_now(descriptor):
                self._read(child, descriptor)
            if descriptor in child.pipes:  # a process that it has left behind holds it open
                self._close_pipe(child, descriptor)
        if child.requests in {key.fileobj for key in self._selector.get_map().values()}:
            self._selector.unregister(child.requests)
        child.requests.close()

    def signal(self, number: int) -> None:
        """Pass a signal on to everybody, with whatever processes they have started."""
        for child in self.children.values():
            with suppress(ProcessLookupError):
                os.killpg(child.process.pid, number)

    def close(self) -> None:
        """End whoever is left."""
        self.signal(signal.SIGKILL)
        for child in list(self.children.values()):
            child.process.wait()
            self._forget(child)
        self._selector.close()


def select_now(descriptor: int) -> bool:
    """Whether there is something to read."""
    with selectors.DefaultSelector() as look:
        look.register(descriptor, selectors.EVENT_READ)
        return bool(look.select(0))


def share(cores: Sequence[int], i: int, n: int) -> set[int] | None:
    """The cores of client i; None where there are more clients than cores, which the kernel shares out.

    >>> share([0, 1, 2, 3, 4], 1, 2)
    {2, 3}
    """
    each = len(cores) // n
    return set(cores[i * each : (i + 1) * each]) if each else None


def gpus() -> list[str]:
    """The GPUs that may be used here."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [part for part in given.split(",") if part]
    found = Path("/proc/driver/nvidia/gpus")
    return [str(k) for k in range(len(list(found.iterdir())))] if found.is_dir() else []
