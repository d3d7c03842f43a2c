"""A live client's own process on one machine, from its start to its end."""

from __future__ import annotations

import logging
import math
import socket
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from swiftfl.client import State
from swiftfl.engines.assignment import Assignment
from swiftfl.engines.live.client import LiveClient
from swiftfl.engines.live.facts import FactsPlan, StepFacts
from swiftfl.engines.live.journal import Journal, journal_file
from swiftfl.engines.live.local.control import ClientChannel
from swiftfl.engines.live.local.forkserver import Launch, name_process
from swiftfl.engines.live.options import LiveOptions
from swiftfl.engines.live.resume import FirstState, Start, load_start
from swiftfl.engines.live.saves import Saver
from swiftfl.engines.live.selecting import OwnSelection
from swiftfl.engines.live.status import (
    FINISHED,
    HOLDING,
    HOLDS,
    READY,
    RUNNING,
    STARTING,
    STOPPED,
    Order,
    StatusTable,
    Tally,
)
from swiftfl.engines.setup import Setup
from swiftfl.engines.terms import ALONE, Terms, unpack_terms
from swiftfl.engines.threads import one_thread
from swiftfl.errors import UserError
from swiftfl.signals import leave_to_the_parent
from swiftfl.transports.base import Transport, TransportPlan
from swiftfl.transports.codec import tell_whose
from swiftfl.vector import Vector
from swiftfl.workload.memory import keep_freed_memory

_log = logging.getLogger(__name__)
_SHOW_EVERY = 0.5
_LOOK_EVERY = 0.005  # seconds between two looks at the status table by a client that holds,
_LOOK_SHARE = 0.0001  # and for each client at least so many, or hundreds would keep the machine busy
_CPU_EVERY = 0.2  # reading the processor's clock makes the kernel settle accounts, and often switch


@dataclass(frozen=True)
class Worker:
    """What every client's process has: inherited, or made anew (`spawned.py`)."""

    setup: Setup
    options: LiveOptions
    status: StatusTable
    plan: TransportPlan
    sockets: Mapping[int, socket.socket]
    folder: Path | None
    session: int
    facts: FactsPlan | None = None
    models: TransportPlan | None = None
    """Where models are shown to whoever evaluates, if what clients send is something else."""

    def run(self, launch: Launch) -> int:
        """All that one process does; its exit code."""
        i = launch.client
        name_process(f"swiftfl-{i}")
        leave_to_the_parent()
        self.status.enter(i, STARTING)
        one_thread()
        keep_freed_memory()
        channel = ClientChannel(self.sockets[i], self.status, i)
        try:
            return self._run(launch, channel)
        except Exception as error:
            _log.debug("client %d failed", i, exc_info=True)
            channel.say("error", describe(error))
            return 1

    def _run(self, launch: Launch, channel: ClientChannel) -> int:
        i, status = launch.client, self.status
        transport = self.plan.connect(i)
        selecting = OwnSelection(i, transport, status, self.setup.algorithm.in_rounds)
        control = WorkerControl(status, channel, launch, selecting)
        kept = self.folder if self.options.record else None
        journal = Journal(None if kept is None else journal_file(kept, i), control.warn)
        first = self._first_state(launch, transport)
        state, tally = first.state, first.tally
        terms = unpack_terms(launch.terms)
        if launch.joins:
            status.enter(i, READY)
            terms = control.first_terms()
            state = State(state.x, max(state.c, terms.from_round), state.memory)
        tell_whose(transport.codec, i).restore(first.codec)
        if first.how != "initial" and self.models is None:
            transport.set_cell(state.x)  # for algorithms whose models are cells
        journal.start(launch.incarnation, self.session, state.c, first.how, first.source)
        if launch.assignment:
            terms = control.select(Assignment.unpack(launch.assignment))
        seconds = None if self.setup.algorithm.in_rounds else self.options.save_seconds
        saver = Saver(self.folder, i, launch.incarnation, control.warn, seconds, self.options.save_steps)
        facts = None if self.facts is None else StepFacts(self.facts, i, control.warn)
        models = None if self.models is None else self.models.connect(i)
        client = LiveClient(
            self.setup,
            i,
            state,
            launch.incarnation,
            transport,
            control,
            journal,
            saver,
            terms,
            tally,
            facts,
            None if models is None else models.show,
        )
        client.announce()
        control.report(state.c, tally)
        status.enter(i, READY)
        control.wait_for(lambda: status.started)
        status.enter(i, RUNNING)
        control.begin()
        if facts is not None:
            facts.begin(status.origin)
        outcome = client.run()
        control.report(client.state.c, tally, settle=True)
        status.enter(i, STOPPED if outcome == "stopped" else FINISHED)
        if outcome == "finished":
            control.wait_for(lambda: status.released)
            client.publish_last_model()
        journal.close()
        transport.close()
        if models is not None:
            models.close()
        return 0

    def _first_state(self, launch: Launch, transport: Transport) -> FirstState:
        """The state to start from, what was counted before, and what the journal says of where it is from."""
        i, counted = launch.client, self.status.tally(launch.client)
        if launch.how == "model":
            (source,) = launch.source
            found = None
            if source in transport.neighbours:  # where all neighbours are gone, it starts from the beginning
                found = transport.read(source, lambda model, version: (model.copy(), version))
            x, version = found or (self.setup.workload.initial(self.setup.seed), 0)
            return FirstState(self.setup.first_state(x, launch.c), counted, "model", (source, version))
        start = Start(launch.c, *launch.source) if launch.how == "save" else None
        first = load_start(self.folder, self.setup, i, start, launch.c)
        return replace(first, tally=counted) if counted.steps else first


def describe(error: Exception) -> str:
    """The error of a client on one line: what it says, and where it was raised, if it is not the user's."""
    if isinstance(error, UserError):
        return str(error)
    text = " ".join(f"{type(error).__name__}: {error}".split())
    last = traceback.extract_tb(error.__traceback__)[-1:]
    return text[:1000] + "".join(f" ({Path(frame.filename).name}, line {frame.lineno})" for frame in last)


class WorkerControl:
    """A client's control: orders from the status table, news and warnings over its channel."""

    def __init__(
        self, status: StatusTable, channel: ClientChannel, launch: Launch, selecting: OwnSelection
    ) -> None:
        self.status, self.channel, self.selecting = status, channel, selecting
        self._early: list[Terms] = []  # that came while this client waited
        self.client, self.incarnation = launch.client, launch.incarnation
        self._cpu_at = self._cpu_before = 0.0
        self._shown = -math.inf
        self._pause = max(_LOOK_EVERY, _LOOK_SHARE * status.n)

    # --- what LiveClient asks --------------------------------------------------------------------

    def report(self, c: int, tally: Tally, settle: bool = False) -> None:
        now = time.perf_counter()
        if self._cpu_before and (settle or now - self._cpu_at >= _CPU_EVERY):
            self._cpu_at, before, self._cpu_before = now, self._cpu_before, time.process_time()
            tally.cpu += self._cpu_before - before
        self.status.write(self.client, c, self.incarnation, tally)

    def new_terms(self) -> list[Terms]:
        early, self._early = self._early, []
        return early + self.selecting.take(self.channel.news(self.incarnation))

    def wants_model(self, published: bool) -> bool:
        """Algorithms that never publish let their model be seen now and then."""
        now = time.perf_counter()
        if published or now - self._shown < _SHOW_EVERY:
            return False
        self._shown = now
        return True

    def hand_over(self, x: Vector, version: int) -> None:
        """Who joins reads what is shown."""

    def order(self, c: int) -> Order:
        return "leave" if self.status.leaves(self.client, c) else self.status.order(c)

    def hold(self, c: int) -> Order:
        self.status.enter(self.client, HOLDING)
        while (order := self.order(c)) in HOLDS:
            if self.status.final and order != "pause":
                return order
            self._answer()
            time.sleep(self._pause)
        self.status.enter(self.client, RUNNING)
        return order

    def set_waits(self, waits: bool) -> None:
        self.status.set_waits(self.client, waits)

    def warn(self, text: str) -> None:
        self.channel.say("warning", text)

    # --- before and after ------------------------------------------------------------------------

    def begin(self) -> None:
        """The processor's time counts from here."""
        self._cpu_before = time.process_time()

    def first_terms(self) -> Terms:
        """Wait to be told from which round this client takes part."""
        while not (found := self.new_terms()):
            time.sleep(self._pause)
        return found[-1]

    def select(self, assignment: Assignment) -> Terms:
        """Run CCS with the neighbours to its end, and wait for them; nobody waits if the run is stopped."""
        self.set_waits(True)
        self.selecting.take([assignment])
        while (terms := self.selecting.result) is None:
            if self.status.order(0) == "stop":
                return ALONE
            time.sleep(self._pause)
            self.selecting.take(self.channel.news(self.incarnation))
        self.set_waits(False)
        return terms

    def wait_for(self, happened: Callable[[], bool]) -> None:
        """Until it has happened; neighbours that run CCS are answered meanwhile."""
        while not happened():
            self._answer()
            time.sleep(self._pause)

    def _answer(self) -> None:
        """Take part in what neighbours select, while this client takes no steps."""
        self._early = self.new_terms()
