"""A live client's own process on one machine: from its birth to its end."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from swiftfl.client import State
from swiftfl.engines.live.client import LiveClient, Order, Tally
from swiftfl.engines.live.journal import Journal, journal_file
from swiftfl.engines.live.local.forkserver import Launch, name_process
from swiftfl.engines.live.saves import Saver, read_all
from swiftfl.engines.live.status import FINISHED, HOLDING, READY, RUNNING, STARTING, STOPPED, StatusTable
from swiftfl.engines.setup import Setup
from swiftfl.engines.terms import Terms, unpack_terms
from swiftfl.engines.threads import one_thread
from swiftfl.errors import UserError
from swiftfl.transports.base import Transport, TransportPlan
from swiftfl.workload.memory import keep_freed_memory

_LARGEST = 1 << 20
_LOOK_EVERY = 0.005  # seconds between two looks at the board by a client that holds
_CPU_EVERY = 0.2  # reading the processor's clock makes the kernel settle accounts, and often switch


@dataclass(frozen=True)
class LiveOptions:
    """How a live run is kept: saves by the clock or by steps, a record for replay, and second lives."""

    save_seconds: float | None = 30.0
    save_steps: int | None = None
    record: bool = True
    restart_lost: bool = False
    most_restarts: int = 5
    session: int = 0  # how often the run has been resumed
    patience: float = 10.0  # seconds that a client may take to stop when it is asked to


@dataclass(frozen=True)
class Worker:
    """What every client inherits."""

    setup: Setup
    options: LiveOptions
    board: StatusTable
    wires: TransportPlan
    lines: Sequence[socket.socket]
    folder: Path | None
    in_rounds: bool

    def live(self, birth: Launch) -> int:
        """The whole life of one client; its exit code."""
        i = birth.client
        name_process(f"swiftfl-{i}")
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches us all: the engine decides
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self.board.enter(i, STARTING)
        one_thread()
        keep_freed_memory()
        line = WorkerControl(self, i)
        try:
            return self._live(birth, line)
        except UserError as error:
            line.say(error=str(error))
            return 1

    def _live(self, birth: Launch, line: WorkerControl) -> int:
        i, board = birth.client, self.board
        transport = self.wires.connect(i)
        kept = self.folder if self.options.record else None
        journal = Journal(None if kept is None else journal_file(kept, i), line.warn)
        line.life = birth.life
        start, source = _first_state(self, birth, transport)
        terms = unpack_terms([*birth.terms, 0])
        if birth.joins:
            board.enter(i, READY)
            terms = line.first_terms()
            start = State(start.x, max(start.c, terms.from_round), start.memory)
        if birth.how != "initial":
            transport.set_cell(start.x)  # for algorithms whose models are cells
        journal.start(birth.life, self.options.session, start.c, birth.how, *source)
        seconds = None if self.in_rounds else self.options.save_seconds
        saver = Saver(self.folder, i, birth.life, line.warn, seconds, self.options.save_steps)
        line.first = start.c
        client = LiveClient(self.setup, i, start, birth.life, transport, line, journal, saver, terms)
        client.announce()
        line.report(start.c, client.tally)
        board.enter(i, READY)
        line.wait_for(lambda: board.started)
        board.enter(i, RUNNING)
        client.began, line.cpu_before = time.perf_counter(), time.process_time()
        outcome = client.run()
        line.report(client.state.c, client.tally, settle=True)
        board.enter(i, FINISHED if outcome == "finished" else STOPPED)
        if outcome == "finished":
            line.wait_for(lambda: board.released)
            client.last_words()
        journal.close()
        transport.close()
        return 0


def _first_state(home: Worker, birth: Launch, transport: Transport) -> tuple[State, tuple[int, ...]]:
    """The state that this life starts from, and what to note of where it comes from."""
    x0 = home.setup.workload.initial(home.setup.seed)
    if birth.how == "initial":
        return home.setup.first_state(x0, birth.c), ()
    if birth.how == "saved":
        return _saved_state(home, birth, x0.size), birth.source
    (teacher,) = birth.source
    found = None
    if teacher in transport.neighbours:  # where all neighbours are gone, it starts from the beginning
        found = transport.read(teacher, lambda model, version: (model.copy(), version))
    x, version = (x0, 0) if found is None else found
    return home.setup.first_state(x, birth.c), (teacher, version)


def _saved_state(home: Worker, birth: Launch, size: int) -> State:
    assert home.folder is not None
    for saved in read_all(home.folder, birth.client, size):
        if (saved.life, saved.state.c) == birth.source:
            return State(saved.state.x, birth.c, saved.state.memory)
    raise UserError(f"client {birth.client} has lost its save of step {birth.source[1]}")


class WorkerControl:
    """A client's control: orders from the board, terms and warnings over a socket of its own."""

    def __init__(self, home: Worker, client: int) -> None:
        self.board, self.client = home.board, client
        self.socket = home.lines[client]
        self.life, self.first = 0, 1
        self._read = 0.0
        self._cpu_at = self._cpu = self.cpu_before = 0.0

    # --- what LiveClient asks --------------------------------------------------------------------

    def report(self, c: int, tally: Tally, settle: bool = False) -> None:
        now = time.perf_counter()
        if settle or now - self._cpu_at >= _CPU_EVERY:
            self._cpu_at, self._cpu = now, time.process_time() - self.cpu_before
        self.board.write(self.client, c, self.life, c - self.first, self._cpu, tally)

    def news(self) -> list[Terms]:
        found: list[Terms] = []
        sent = self.board.letters[self.client]
        if sent == self._read:
            return found
        self._read = sent
        while True:
            try:
                packet = self.socket.recv(_LARGEST, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return found
            message = json.loads(packet)
            if message["life"] == self.life or message["life"] < 0:
                found.append(unpack_terms(message["terms"]))

    def order(self, c: int) -> Order:
        return self.board.order(c)

    def hold(self, c: int) -> Order:
        self.board.enter(self.client, HOLDING)
        while (order := self.board.order(c)) in ("stop", "finish"):
            if self.board.final:
                return order
            time.sleep(_LOOK_EVERY)
        self.board.enter(self.client, RUNNING)
        return order

    # --- before and after ------------------------------------------------------------------------

    def first_terms(self) -> Terms:
        """Wait to be told from which round this client takes part."""
        while not (found := self.news()):
            time.sleep(_LOOK_EVERY)
        return found[-1]

    def wait_for(self, happened: Callable[[], bool]) -> None:
        while not happened():
            time.sleep(_LOOK_EVERY)

    def warn(self, text: str) -> None:
        self.say(warning=text)

    def say(self, **message: str) -> None:
        with suppress(OSError):  # nobody listens any more, or there is too much to say
            self.socket.send(json.dumps(message).encode(), socket.MSG_DONTWAIT)
