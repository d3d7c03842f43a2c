"""Clients as fresh processes, which share nothing with the engine's: CUDA cannot be used after a fork.

The fork server forks as ever, and the fork becomes a new Python at once. It is told everything in plain JSON
and makes the run's setup again, from names and references; memory and sockets come as descriptors. Whatever
else a fork would inherit it has not: objects of the user's own have to be known by reference.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from swiftfl.engines.live.facts import FactsPlan
from swiftfl.engines.live.local.control import ClientChannel
from swiftfl.engines.live.local.forkserver import FirstWords, Launch
from swiftfl.engines.live.local.worker import Worker, describe
from swiftfl.engines.live.options import LiveOptions
from swiftfl.engines.live.status import StatusTable
from swiftfl.engines.setup import Setup
from swiftfl.errors import UserError
from swiftfl.fresh import fresh_python
from swiftfl.transports.base import TransportPlan
from swiftfl.transports.codec import measured
from swiftfl.transports.shared_memory import SharedMemory

_log = logging.getLogger(__name__)
Told = dict[str, Any]


@dataclass(frozen=True)
class Remade:
    """How a fresh process makes the setup of a run again: a program, `python -m module`, and what it is told.

    The program calls `run_spawned`, with a function that makes the setup of what it is told.
    """

    module: str
    told: Mapping[str, Any]


def handed_over(plan: TransportPlan) -> SharedMemory:
    """A plan that can be handed to a fresh process."""
    if not isinstance(plan, SharedMemory):
        raise UserError(
            "clients that are spawned can be handed shared memory only: leave out engine.live.transport, "
            "or fork them (--set engine.live.start=fork)"
        )
    return plan


class SpawnedClients:
    """What the fork server calls in a new client's process: the process becomes a fresh one."""

    def __init__(self, worker: Worker, status_file: int, remade: Remade) -> None:
        self._worker, self._status_file, self._remade = worker, status_file, remade
        self._plan = handed_over(worker.plan)
        self._models = None if worker.models is None else handed_over(worker.models)
        self.words = FirstWords()

    def run(self, launch: Launch) -> int:
        """Does not return, unless there is no such program."""
        before = self.words.keep(launch.client)
        worker, facts = self._worker, self._worker.facts
        end = worker.sockets[launch.client].fileno()
        models = self._models
        files = [self._status_file, end, *self._plan.files, *([] if models is None else models.files)]
        told = {
            **self._remade.told,
            "launch": asdict(launch),
            "options": asdict(worker.options),
            "clients": worker.setup.n,
            "files": files,
            "memory": self._plan.described(),
            "models": None if models is None else models.described(),
            "folder": None if worker.folder is None else str(worker.folder),
            "session": worker.session,
            "facts": None if facts is None else {**facts.__dict__, "folder": str(facts.folder)},
            "stderr": before,
        }
        message = os.memfd_create("swiftfl-told")
        os.write(message, json.dumps(told).encode())
        for file in (*files, message, before):
            os.set_inheritable(file, True)
        line = fresh_python(self._remade.module, str(message))
        os.execve(line[0], line, {**os.environ, "OMP_NUM_THREADS": "1"})


def run_spawned(message: int, make_setup: Callable[[Told], Setup]) -> int:
    """All that the process of a spawned client does; its exit code."""
    told = json.loads(os.pread(message, os.fstat(message).st_size, 0))
    os.close(message)
    status_file, control, *memory = told["files"]
    for file in told["files"]:
        os.set_inheritable(file, False)  # helpers, such as loaders, must not keep them
    given = told["launch"]
    launch = Launch(**{**given, "source": tuple(given["source"])})
    i, status = launch.client, StatusTable.opened(told["clients"], status_file)
    end = socket.socket(fileno=control)
    with _told_to(ClientChannel(end, status, i)) as problem:
        FirstWords.let_go(told["stderr"])
        setup = make_setup(told)
        models = None if told["models"] is None else SharedMemory.opened(told["models"], [memory.pop()])
        plan = SharedMemory.opened(told["memory"], memory, partial(measured, setup.codec))
        folder, facts = told["folder"], told["facts"]
        worker = Worker(
            setup,
            LiveOptions(**told["options"]),
            status,
            plan,
            {i: end},
            None if folder is None else Path(folder),
            told["session"],
            None if facts is None else _facts_plan(facts),
            models,
        )
    return 1 if problem else worker.run(launch)


@contextlib.contextmanager
def _told_to(channel: ClientChannel) -> Iterator[list[Exception]]:
    """What goes wrong before there is a client is the client's error."""
    problem: list[Exception] = []
    try:
        yield problem
    except Exception as error:
        _log.debug("client %d cannot be made", channel.client, exc_info=True)
        channel.say("error", describe(error))
        problem.append(error)


def _facts_plan(facts: Mapping[str, Any]) -> FactsPlan:
    near = [tuple(those) for those in facts["neighbourhoods"]]
    return FactsPlan(Path(facts["folder"]), facts["bytes_each"], near)
