"""A client's link to the others when `swiftfl launch` has started it: launcher and shared memory.

A request is one JSON message on a socket of its own; a reply may bring a file descriptor with it. Of what the
launcher tells without being asked (new coefficients), live runs have the channel.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from swiftfl.client import State
from swiftfl.engines.live.client import LiveClient
from swiftfl.engines.live.facts import FactsPlan, StepFacts
from swiftfl.engines.live.journal import Journal, journal_file, version
from swiftfl.engines.live.local.control import ClientChannel
from swiftfl.engines.live.local.forkserver import Launch
from swiftfl.engines.live.local.worker import WorkerControl
from swiftfl.engines.live.saves import Saver
from swiftfl.engines.live.selecting import OwnSelection
from swiftfl.engines.live.status import FINISHED, READY, RUNNING, STARTING, StatusTable
from swiftfl.engines.terms import unpack_terms
from swiftfl.errors import UserError
from swiftfl.loop.federation import Federation
from swiftfl.loop.module_vector import ModuleVector
from swiftfl.loop.wrapped_rule import WrappedRule
from swiftfl.transports.shared_memory.transport import SharedMemory, SharedMemoryTransport
from swiftfl.vector import Vector

LARGEST = 1 << 20
"""Bytes of a message."""
_FACTS_BYTES = 64_000_000  # that the facts of a launch may take
_SAY_AFTER = 10.0  # seconds of waiting for the first model, after which the user is told
_PR_SET_PDEATHSIG = 1


def facts_bytes(n: int) -> int:
    """How many bytes of facts each of n clients may write."""
    return _FACTS_BYTES // n


@dataclass(frozen=True)
class Told:
    """What the launcher tells a process in its environment."""

    rank: int
    incarnation: int
    status: int  # these three are file descriptors
    control: int
    requests: int
    federation: str
    journal: str | None = None

    def pack(self) -> str:
        return json.dumps(self.__dict__)

    @classmethod
    def unpack(cls, text: str) -> Told:
        return cls(**json.loads(text))


class LaunchedLink:
    """One client's end; made by `join()`."""

    def __init__(self, told: Told) -> None:
        self.told, self.rank = told, told.rank
        self.federation = Federation.unpack(told.federation)
        self.n = self.federation.n
        self.status = StatusTable.opened(self.n, told.status)
        self._channel = ClientChannel(socket.socket(fileno=told.control), self.status, self.rank)
        self._requests = socket.socket(fileno=told.requests)
        for descriptor in (told.status, told.control, told.requests):
            os.set_inheritable(descriptor, False)  # helpers of the loop, such as loaders, must not keep them
        self._transport: SharedMemoryTransport | None = None
        self._journal: Journal | None = None
        self.status.enter(self.rank, STARTING)

    @classmethod
    def from_environment(cls, told: str) -> LaunchedLink:
        del os.environ["SWIFTFL_LAUNCHED"]  # it is for this process, not for those that it starts
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        return cls(Told.unpack(told))

    @property
    def neighbours(self) -> tuple[int, ...]:
        near = {k for edge in self.federation.edges if self.rank in edge for k in edge}
        return tuple(sorted(near - {self.rank}))

    # --- the start -----------------------------------------------------------------------------

    def connect(self, module: ModuleVector, rule: WrappedRule) -> LiveClient:
        i, incarnation = self.rank, self.told.incarnation
        reply, memory = self._meet(module)
        transport, x0 = self._open(reply, memory)
        setup = self.federation.setup(rule, module.trainable, module.size - module.trainable)
        in_rounds = setup.algorithm.in_rounds
        launch = Launch(i, incarnation)
        control = WorkerControl(
            self.status, self._channel, launch, OwnSelection(i, transport, self.status, in_rounds)
        )
        found, how = None, "initial"
        source: tuple[int, ...] = ()
        if (k := reply["source"]) is not None:
            found = transport.read(k, lambda model, which: (model.copy(), which))
            how, source = "model", (k, 0 if found is None else found[1])
        state = State(x0 if found is None else found[0], reply["c"])
        terms = unpack_terms(reply["terms"])
        if reply["joins"]:
            self.status.enter(i, READY)
            terms = control.first_terms()
            state = State(state.x, max(state.c, terms.from_round))
        if how != "initial":
            transport.set_cell(state.x)
        file = None if self.told.journal is None else journal_file(Path(self.told.journal), i)
        self._journal = Journal(file, control.warn)
        self._journal.start(incarnation, 0, state.c, how, source)
        saver = Saver(None, i, incarnation, control.warn, None, None)
        facts = self._facts(reply, control.warn)
        client = LiveClient(
            setup, i, state, incarnation, transport, control, self._journal, saver, terms, facts=facts
        )
        client.announce()
        self.status.enter(i, RUNNING)
        control.begin()
        return client

    def _facts(self, reply: dict[str, Any], warn: Callable[[str], None]) -> StepFacts | None:
        """Where this client tells of its steps, if somebody wants to watch."""
        if reply["facts"] is None:
            return None
        folder, origin = reply["facts"]
        near = [tuple(those) for those in reply["memory"]["neighbours"]]
        facts = StepFacts(FactsPlan(Path(folder), facts_bytes(self.n), near), self.rank, warn)
        facts.begin(origin)
        return facts

    def _meet(self, module: ModuleVector) -> tuple[dict[str, Any], int]:
        """Tell the launcher of the model; its answer, and the shared memory."""
        about = {
            "size": module.size,
            "dtype": module.dtype.str,
            "shape": module.shape(),
            "frozen": module.frozen(),
        }
        self._ask({"hello": about})
        reply, memory = self._answer("waiting for the model of the first client, from which all start")
        if "first" in reply:
            self._ask({"x0": module.size}, module.read())
            reply, memory = self._answer("waiting for the shared memory of all clients")
        if memory is None:
            raise UserError("the launcher has passed on no shared memory")
        return reply, memory

    def _open(self, reply: dict[str, Any], memory: int) -> tuple[SharedMemoryTransport, Vector]:
        plan = SharedMemory.opened(reply["memory"], [memory])
        self._transport = plan.connect(self.rank)
        layout = plan.layout
        x0 = np.frombuffer(os.pread(memory, layout.size * layout.itemsize, layout.x0), plan.dtype).copy()
        os.close(memory)
        return self._transport, x0

    # --- later ---------------------------------------------------------------------------------

    def consensus(self, client: LiveClient, x: Vector, seconds: float) -> tuple[Vector, int]:
        """The launcher averages what all who ask have shown."""
        client.transport.show(x, version(client.incarnation, client.state.c))
        self._ask({"consensus": seconds})
        reply, memory = self._answer(None)
        if memory is None:
            raise UserError("the launcher has passed on no average")
        mean = np.frombuffer(os.pread(memory, x.nbytes, 0), x.dtype).copy()
        os.close(memory)
        return mean, int(reply["clients"])

    def close(self) -> None:
        self.status.enter(self.rank, FINISHED)
        if self._journal is not None:
            self._journal.close()
        if self._transport is not None:
            self._transport.close()
        self._requests.close()
        self._channel.socket.close()

    # --- requests ------------------------------------------------------------------------------

    def _ask(self, request: dict[str, Any], vector: Vector | None = None) -> None:
        send(self._requests, request, vector)

    def _answer(self, waiting: str | None) -> tuple[dict[str, Any], int | None]:
        """The launcher's answer; it may take as long as another client needs."""
        self._requests.settimeout(None if waiting is None else _SAY_AFTER)
        try:
            found = receive(self._requests)
        except TimeoutError:
            print(f"swiftfl: {waiting}", file=sys.stderr, flush=True)
            self._requests.settimeout(None)
            found = receive(self._requests)
        if found is None:
            raise UserError("swiftfl launch has ended, and with it this client's link to the others")
        if "error" in found[0]:
            raise UserError(found[0]["error"])
        return found


def send(to: socket.socket, message: dict[str, Any], vector: Vector | None = None) -> None:
    """One message; a vector goes with it as a file in memory."""
    if vector is None:
        send_with_file(to, message)
        return
    file = os.memfd_create("swiftfl-vector", os.MFD_CLOEXEC)
    try:
        with open(file, "wb", closefd=False) as out:
            out.write(np.ascontiguousarray(vector).data)
        send_with_file(to, message, file)
    finally:
        os.close(file)


def send_with_file(to: socket.socket, message: dict[str, Any], file: int | None = None) -> None:
    """To somebody who may have ended meanwhile, which is noticed otherwise."""
    with suppress(ConnectionError):
        socket.send_fds(to, [json.dumps(message).encode()], [] if file is None else [file])


def receive(source: socket.socket) -> tuple[dict[str, Any], int | None] | None:
    """A message and the file that came with it, if any; None if the other end is closed."""
    try:
        packet, files, _, _ = socket.recv_fds(source, LARGEST, 1)
    except ConnectionError:  # it has ended with something unread
        return None
    if not packet:
        return None
    for file in files:
        os.set_inheritable(file, False)
    return json.loads(packet), files[0] if files else None
