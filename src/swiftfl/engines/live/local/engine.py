"""Real clients on one machine: one process each, models in shared memory, and a supervisor.

The supervisor (`engines.live.supervisor`) runs in a thread of the engine's process, and no client ever waits
for it. The engine starts clients through its fork server, notices within a moment when one ends, and carries
out what the supervisor decides: neighbours of a lost client keep its weight for themselves from their next
fetch on, new coefficients are sent and taken at the start of a step, and a lost client is started again if
that was asked for.
"""

from __future__ import annotations

import logging
import math
import os
import select
import signal
import socket
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

from swiftfl import kernels, recycled
from swiftfl.engines.live.facts import FactsPlan
from swiftfl.engines.live.local.control import ControlChannel
from swiftfl.engines.live.local.forkserver import Exit, ForkServer, Launch, allow_descriptors
from swiftfl.engines.live.local.spawned import Remade, SpawnedClients
from swiftfl.engines.live.local.worker import Worker
from swiftfl.engines.live.options import LiveOptions
from swiftfl.engines.live.resume import ResumePoint
from swiftfl.engines.live.saves import read_all
from swiftfl.engines.live.selecting import News, Switch
from swiftfl.engines.live.status import ABSENT, FINISHED, READY, RUNNING, STOPPED, StatusTable
from swiftfl.engines.live.supervised import SupervisedRun
from swiftfl.engines.setup import Setup
from swiftfl.engines.terms import ALONE, Terms, pack_terms
from swiftfl.engines.threads import one_thread
from swiftfl.errors import UserError
from swiftfl.recycled import LARGE
from swiftfl.transports.base import MakePlan, Observer, TransportPlan
from swiftfl.transports.codec import Identity, measured
from swiftfl.transports.shared_memory import SharedMemory
from swiftfl.vector import Vector

_log = logging.getLogger(__name__)
_TICK = 0.05
_NOTICE_SECONDS = 0.5  # within which every client has heard of something
_DESCRIPTORS = 64  # besides three per client, or four if what it says at first is kept
_WITH_THE_SERVER = "ended with the process that starts clients (swiftfl-fork), which was killed"
_TOO_LATE = "it was back too late to take part in any further round"
_LAST_SAVES = 5.0  # seconds that clients get to save when the supervisor has failed


class LocalEngine(SupervisedRun):
    """A live run; `start` it, `wait` until it is over, and `close` it whatever happened."""

    name = "local"

    def __init__(
        self,
        setup: Setup,
        folder: Path | None = None,
        options: LiveOptions = LiveOptions(),
        resume: ResumePoint | None = None,
        transport: MakePlan = SharedMemory.create,
        facts: FactsPlan | None = None,
        remade: Remade | None = None,
    ) -> None:
        """With `remade` clients are spawned, and not forked."""
        status, self._status_file = (None, -1) if remade is None else StatusTable.in_file(setup.n)
        super().__init__(setup, self, folder, options, resume, _NOTICE_SECONDS, facts, status)
        self._make_plan, self._remade = transport, remade
        self.living: set[int] = set()  # whose processes live
        self.terms = self.first_terms()  # as they were last sent
        self._returning: set[int] = set()  # who is back, and takes part once all have run CCS with it
        self._incarnations = list(self.resume.incarnations)
        self._errors: dict[int, str] = {}
        self._failure: Exception | None = None
        self._closed = False
        self._plan: TransportPlan | None = None
        self._models: TransportPlan | None = None  # for whoever evaluates, where messages are no models
        self._observer: Observer | None = None
        self._channel: ControlChannel | None = None
        self.fork_server: ForkServer | None = None
        self._thread = threading.Thread(target=self._supervise, name="swiftfl-supervisor", daemon=True)

    # --- for whoever runs it -----------------------------------------------------------------------

    def start(self) -> None:
        """Fork the fork server and every client; returns at once."""
        one_thread()  # the models are evaluated here, beside the clients
        setup, in_rounds = self.setup, self.setup.algorithm.in_rounds
        allow_descriptors((3 if self._remade is None else 4) * self.n + _DESCRIPTORS)
        if self.folder is not None:
            self.folder.mkdir(exist_ok=True)
        neighbours, codec = self.neighbourhoods(), partial(measured, setup.codec)
        self._plan = self._make_plan(neighbours, self.first_message, codec, in_rounds)
        if not self.sends_models:
            self._models = self._make_plan([()] * self.n, self.x0, Identity, in_rounds)
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(self.n)]
        self._channel = ControlChannel([ours for ours, _ in pairs], self.status, in_rounds)
        theirs = dict(enumerate(end for _, end in pairs))
        session = self.resume.session
        worker = Worker(
            setup,
            self.options,
            self.status,
            self._plan,
            theirs,
            self.folder,
            session,
            self.facts,
            self._models,
        )
        if self.x0.size >= LARGE:
            kernels.compiled()  # once, here, and not by every client at its first step
        remade = self._remade
        spawned = None if remade is None else SpawnedClients(worker, self._status_file, remade)
        self.fork_server = ForkServer(*((worker.run,) if spawned is None else (spawned.run, spawned.words)))
        for end in theirs.values():
            end.close()
        self._observer = (self._models or self._plan).observe()
        for text in self.resume.notes:
            self.supervisor.warn(text)
        told = {} if self.supervisor.own_ccs is None else self.first_assignments()
        for i in range(self.n):
            if i in self.supervisor.absent:
                self._plan.mark_gone(i)
            else:
                self._launch(self._first_launch(i, told[i].pack() if told else []))
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Wait some time; whether the run is over. A supervisor that has failed is an error."""
        over = self.supervisor.over.wait(seconds)
        if isinstance(self._failure, UserError):
            raise self._failure
        if self._failure is not None:
            reason = f"{type(self._failure).__name__}: {self._failure}"
            raise UserError(f"the supervisor of the run failed: {reason}") from self._failure
        return over

    def stop(self) -> None:
        """Ask everybody to stop where the run can go on later; may be called in a signal handler."""
        self.supervisor.ask()

    def close(self) -> None:
        """End every process and give everything back."""
        if self._closed:
            return
        self._closed = True
        self.supervisor.over.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)
        for part in (self.fork_server, self._observer, self._plan, self._models, self._channel):
            if part is not None:
                part.close()
        if self._status_file >= 0:
            os.close(self._status_file)
        recycled.let_go()

    @property
    def over(self) -> bool:
        return self.supervisor.over.is_set()

    @property
    def stopped(self) -> bool:
        return self.supervisor.stopped

    @property
    def models(self) -> list[Vector]:
        """A copy of each client's newest model; x0 for one that has none."""
        assert self._observer is not None, "the run has not been started"
        newest = [self._observer.read(i, lambda x, version: x.copy()) for i in range(self.n)]
        return [self.x0.copy() if model is None else model for model in newest]

    @property
    def models_in_memory(self) -> int:
        """One per client, and what the transport keeps."""
        plans = [plan for plan in (self._plan, self._models) if plan is not None]
        return self.n + sum(plan.models_in_memory for plan in plans)

    def figures(self) -> dict[str, Any]:
        own_ccs = self.supervisor.own_ccs is not None
        return self.figures_with(self.renewed_terms() if own_ccs else self.terms)

    # --- the supervisor's thread -------------------------------------------------------------------

    def _supervise(self) -> None:
        try:
            assert self.fork_server is not None
            assert self._channel is not None
            poll = select.poll()
            for end in (self.fork_server.socket, *self._channel.sockets):
                poll.register(end, select.POLLIN)
            while not self.supervisor.over.is_set():
                poll.poll(_TICK * 1000)
                self._tick()
        except Exception as error:
            _log.exception("the supervisor failed")
            self._failure = error
            self._let_clients_save()
            self.supervisor.end()

    def _tick(self) -> None:
        server, channel = self.fork_server, self._channel
        assert server is not None
        assert channel is not None
        ended = server.ended()
        self._listen(channel)  # now, for a client says why it ends before it does
        for each in ended:
            self._ended(each)
        if not server.alive:
            for i in list(self.living):
                self._ended(Exit(i, self._incarnations[i], signal.SIGKILL, _WITH_THE_SERVER))
        channel.deliver(self.living)
        for i in [i for i in self.supervisor.joining - self.supervisor.absent if self.is_ready(i)]:
            self._join(i)
        self.changes.tick(self.living)
        if self.living:
            self.supervisor.tick(self.living)
        else:
            self.supervisor.end()

    def _listen(self, channel: ControlChannel) -> None:
        """Warnings and errors of clients."""
        for i, message in channel.received():
            if "error" in message:
                self._errors[i] = str(message["error"])
            elif "warning" in message:
                self.supervisor.warn(str(message["warning"]), i)

    def _let_clients_save(self) -> None:
        """The supervisor has failed: clients that wait for nobody stop and save, if they can."""
        if self.setup.algorithm.in_rounds or not self.status.started:
            return
        self.status.stop_at(0.0)
        self.status.make_final()
        end = time.monotonic() + _LAST_SAVES
        while time.monotonic() < end and any(
            self.status.phase(i) not in (STOPPED, FINISHED) for i in self.living
        ):
            time.sleep(_TICK)

    # --- launches and ends -------------------------------------------------------------------------

    def _first_launch(self, i: int, assignment: list[Any]) -> Launch:
        """How client i starts when the run does."""
        number, start, terms = self._incarnations[i], self.resume.starts[i], pack_terms(self.terms[i])
        if start is None:
            return Launch(i, number, terms=terms, assignment=assignment)
        source = (start.client, start.incarnation, start.saved_c)
        return Launch(i, number, "save", start.c, source, terms, assignment=assignment)

    def _launch(self, launch: Launch) -> None:
        assert self.fork_server is not None
        self.status.enter(launch.client, ABSENT)
        self.living.add(launch.client)
        self.fork_server.start(launch)

    def _ended(self, ended: Exit) -> None:
        i = ended.client
        if ended.failure and not self.status.started:
            raise UserError(f"client {i} of {self.n} {ended.failure}")
        self.living.discard(i)
        if self.status.phase(i) in (FINISHED, STOPPED):
            if i in self.supervisor.absent:
                self.mark_lost(i)  # it has left
            return
        self.supervisor.lose(i, self._errors.pop(i, str(ended)))
        if self.living and self.supervisor.may_restart(i):
            self._restart(i)

    def _restart(self, i: int) -> None:
        """From its last save, or else from the newest model of a neighbour."""
        self.supervisor.restarts[i] += 1
        self._incarnations[i] += 1
        number, alone, in_rounds = self._incarnations[i], pack_terms(ALONE), self.setup.algorithm.in_rounds
        saves = [] if self.folder is None else read_all(self.folder, i, self.setup.first_state(self.x0))[0]
        if saves:
            c, source = saves[0].state.c, (i, saves[0].incarnation, saves[0].state.c)
            launch = Launch(i, number, "save", c, source, alone, in_rounds)
        else:
            c = max(1, int(self.status.c(i)))
            launch = Launch(i, number, "model", c, (self._source_of_model(i),), alone, in_rounds)
        self.supervisor.note("restart", i, how=launch.how, incarnation=number)
        self.supervisor.joining.add(i)
        self._launch(launch)

    def _source_of_model(self, i: int) -> int:
        """The most advanced neighbour that is there, or whoever is."""
        near = self.setup.weights[i].of if self.network is None else self.network.neighbours(i)
        near = [k for k in near if k in self.living] or sorted(self.living)
        return max(near, key=lambda k: (self.status.c(k), -k))

    def _join(self, i: int) -> None:
        """Client i is back and ready: it is a neighbour again from the renewal on."""
        assert self._plan is not None
        if self.supervisor.own_ccs is not None and self.setup.algorithm.in_rounds:
            self._returning.add(i)
            self.supervisor.rejoin(i, 0)
            return
        from_round = self.supervisor.next_round(joining=i)
        if from_round > self.setup.steps_of(i):
            self.supervisor.joining.discard(i)
            self.supervisor.patience.give_up(i, _TOO_LATE)
            return
        self._plan.rejoin(i, from_round)
        self.supervisor.rejoin(i, from_round)
        if self.network is None:
            self._send(i, Terms(self.setup.weights[i], 1.0, from_round))

    # --- clients that join as planned --------------------------------------------------------------

    def prepare(self, i: int) -> None:
        """Start its process, from the newest model of a neighbour."""
        if self.status.phase(i) != ABSENT:  # it was there before
            self._incarnations[i] += 1
        self.status.leaves_at[i] = math.inf
        number, alone, in_rounds = self._incarnations[i], pack_terms(ALONE), self.setup.algorithm.in_rounds
        c = max(1, int(self.status.c(i)))
        self._launch(Launch(i, number, "model", c, (self._source_of_model(i),), alone, in_rounds))

    def is_ready(self, i: int) -> bool:
        return i in self.living and self.status.phase(i) in (READY, RUNNING)

    def admit(self, i: int, from_round: int) -> None:
        assert self._plan is not None
        self._plan.rejoin(i, from_round)

    def turn_away(self, i: int, reason: str) -> None:
        self.supervisor.patience.give_up(i, reason)

    def all_have_heard(self) -> bool:
        return True  # it is in their sockets, which they look into when a pause is over

    # --- what the supervisor asks for --------------------------------------------------------------

    def mark_lost(self, i: int) -> None:
        assert self._plan is not None
        self._returning.discard(i)
        self._plan.mark_gone(i)

    def renew(self, from_round: int) -> None:
        """Send everybody who is there its new coefficients."""
        assert self.network is not None
        for i, (w, scale) in self.network.renew().items():
            if i in self.living and i not in self.supervisor.joining:
                self._send(i, Terms(w, scale, from_round))

    def announce(self) -> int:
        assert self.network is not None
        for i, assignment in self.network.assignments().items():
            self._tell(i, assignment)
        return self.network.renewals

    def switch(self, epoch: int, from_round: int) -> None:
        assert self._plan is not None
        assert self.network is not None
        if late := [i for i in self._returning if from_round > self.setup.steps_of(i)]:
            for i in late:  # whose loss begins another epoch
                self.supervisor.patience.give_up(i, _TOO_LATE)
            return
        for i in self._returning:
            self._plan.rejoin(i, from_round)
        self._returning.clear()
        for i in self.network.known:
            self._tell(i, Switch(epoch, from_round))

    def is_stopped(self, i: int) -> bool:
        if self.fork_server is None or i not in self.fork_server.pids:
            return False
        try:
            about = Path(f"/proc/{self.pid(i)}/stat").read_text()
        except OSError:
            return False
        return about.rpartition(")")[2].split()[0] in ("T", "t")

    def kill(self, i: int) -> None:
        assert self.fork_server is not None
        self.fork_server.kill(i)

    def _send(self, i: int, terms: Terms) -> None:
        self.terms[i] = terms
        self._tell(i, terms)

    def _tell(self, i: int, news: News) -> None:
        assert self._channel is not None
        if i in self.living:
            self._channel.send(i, self._incarnations[i], news)
            self._channel.deliver(self.living)

    def pid(self, i: int) -> int:
        """The process of client i."""
        assert self.fork_server is not None
        return self.fork_server.pids[i]
