"""How the ranks of a run and its first rank keep in touch: small tables on newest-value channels.

Every client sends its row of the status table to client 0, which sends everybody its orders, who is lost,
and the influence that holds. Nobody waits for either, and each client works out its own new coefficients:
all have the same network and are told the same, so they get the same matrix. (Where clients run CCS
themselves, each works out its own part in it, and selects its weights with its neighbours.) If client 0 is
lost, or has been silent for too long, there are no more orders: its neighbours keep its weight for
themselves, and all train on to their end.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import zlib
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from swiftfl.engines.assignment import Assignment
from swiftfl.engines.live.selecting import News, OwnSelection, Switch
from swiftfl.engines.live.status import AT, COLUMNS, HOLDING, HOLDS, RUNNING, Order, StatusTable, Tally
from swiftfl.engines.membership import Membership
from swiftfl.engines.terms import ALONE, Terms
from swiftfl.transports.messages.newest import NewestReceiver, NewestSender
from swiftfl.transports.messages.transport import MessageTransport
from swiftfl.transports.messages.wire import ORDER, STATUS
from swiftfl.vector import Vector

FIRST = 0
"""The client whose process supervises and records the run."""
TICK = 0.05
_HEARTBEAT = 1.0  # seconds between two messages of the first rank that say nothing new
_LEAVE, _FROM_ROUND, _SERIAL, _SHOW, _SWITCH, _SWITCH_ROUND, _TABLES = 8, 9, 10, 11, 12, 13, 14
_LEADERLESS = 1 << 32  # above every epoch that the first rank announces
_OF_CLIENTS = ("lost", "influence", "absent", "joined", "source", "leaves")
_LOOK_EVERY = 0.005
_CPU_EVERY = 0.2
_ASLEEP = 0.5  # a longer pause between two looks is not somebody else's silence, but our own

Table = npt.NDArray[np.float64]
log = logging.getLogger(__name__)


class Silence:
    """For how long others have said nothing, without the time in which this process itself was stopped."""

    def __init__(self, clients: Iterable[int]) -> None:
        self._seconds = dict.fromkeys(clients, 0.0)
        self._looked = time.monotonic()

    def look(self) -> None:
        now = time.monotonic()
        passed, self._looked = min(now - self._looked, _ASLEEP), now
        for k in self._seconds:
            self._seconds[k] += passed

    def heard(self, k: int) -> None:
        self._seconds[k] = 0.0

    def of(self, k: int) -> float:
        return self._seconds.get(k, 0.0)


class RankChannel:
    """One rank's end of the control channel. Its thread also calls `supervise` on the first rank."""

    def __init__(
        self,
        transport: MessageTransport,
        network: Membership | None,
        status: StatusTable,
        patience: float,
        absent: set[int] | None = None,
        own_ccs: bool = False,
    ) -> None:
        self.transport, self.network, self.status = transport, network, status
        self.absent = set() if absent is None else absent  # who takes no part now, as planned
        self.absent_at_start = frozenset(self.absent)
        self.me, self.n = transport.i, transport.n
        self.patience, self.own_ccs = patience, own_ccs
        self.asked = False  # to stop; a signal handler may set it
        self.silenced = False  # nothing more to report
        self.news: list[News] = []
        self.supervise: Callable[[], None] = lambda: None
        self.failure: BaseException | None = None
        self._edges = [] if network is None else sorted(network.possible_edges())
        self._out = np.zeros(_TABLES + len(_OF_CLIENTS) * self.n + len(self._edges))
        self._describe()
        self._column("leaves")[:] = math.inf
        self._column("source")[:] = -1
        self._row = np.zeros(len(COLUMNS))
        self._serial = self._switched = 0
        self._alone_with: set[int] = set()
        self._closing = False
        others = [k for k in range(self.n) if k != FIRST]
        if self.me == FIRST:
            self._orders = NewestSender(transport.progress, ORDER, self._out, others)
            self._statuses = {k: NewestReceiver(transport.progress, STATUS, k, self._row) for k in others}
        else:
            self._status = NewestSender(transport.progress, STATUS, self._row, [FIRST])
            self._statuses = {FIRST: NewestReceiver(transport.progress, ORDER, FIRST, self._out)}
        self.silence = Silence(self._statuses)
        self._heard = dict.fromkeys(self._statuses, 0)
        self._final: set[int] = set()  # whose last numbers have come
        self._noting = threading.Lock()
        self._sent: Table = np.zeros(0)
        self._sent_at = 0.0
        self._phase = -1.0  # as it was last told
        self._version = 0
        self._thread = threading.Thread(target=self._work, name="swiftfl-control", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask(self) -> None:
        """Stop where the run can go on later; may be called by a signal handler."""
        self.asked = True

    def close(self) -> None:
        self._closing = True
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        try:
            while not self._closing:
                self.tick()
                time.sleep(_LOOK_EVERY if self.asked else TICK)  # asked: there may be little time left
        except BaseException as error:
            self.failure = error
            log.debug("the control channel of rank %d failed", self.me, exc_info=True)

    def tick(self) -> None:
        self.silence.look()
        self._listen()
        if self.me == FIRST:
            self.supervise()
            self._send_orders()
        else:
            self._send_status()
            if self.asked and self.leaderless:
                self.transport.mark_gone(FIRST)  # nobody is to wait for it before stopping

    def _listen(self) -> None:
        for k, receiver in self._statuses.items():
            if receiver.count != self._heard[k]:
                self._heard[k] = receiver.count
                self.silence.heard(k)
                receiver.read(self._obey if k == FIRST else self._note_status(k))

    def _send_orders(self) -> None:
        self._out[:_LEAVE] = self.status.orders
        self._column("leaves")[:] = self.status.leaves_at
        now, changed = time.monotonic(), not np.array_equal(self._out, self._sent)
        if changed or now - self._sent_at > _HEARTBEAT:
            self._version += 1
            self._sent, self._sent_at = self._out.copy(), now
            self._orders.put(self._out, self._version, quiet=not changed)
            self._take_part(self._out)

    def _send_status(self) -> None:
        if self.silenced:
            return
        self._version += 1
        row = self.status.rows[self.me]
        phase, self._phase = self._phase, row[AT["phase"]]
        self._status.put(row, self._version, quiet=phase == self._phase and not self.asked)

    # --- the first rank --------------------------------------------------------------------------

    def _note_status(self, k: int) -> Callable[[Vector, int], None]:
        def note(row: Vector, version: int) -> None:
            with self._noting:
                if k not in self._final:
                    self.status.rows[k] = row

        return note

    def finalize(self, k: int, row: Vector) -> None:
        """The last numbers of client k; a status that was sent earlier and is read later changes nothing."""
        with self._noting:
            self._final.add(k)
            self.status.rows[k] = row

    def renew(self, from_round: int) -> int:
        """Everybody is to work out new coefficients, from who is known and what influence holds now.

        The number of this renewal is the epoch, where clients run CCS themselves.
        """
        assert self.network is not None
        self._out[_FROM_ROUND] = from_round
        self._out[_SERIAL] += 1
        self._describe()
        self._take_part(self._out)
        return self._serial

    def _describe(self) -> None:
        """Put down the network as it is."""
        if self.network is None:
            return
        self._column("absent")[:] = [k in self.absent for k in range(self.n)]
        self._column("influence")[:] = self.network.influence
        self._out[_TABLES + len(_OF_CLIENTS) * self.n :] = [edge in self.network.up for edge in self._edges]

    def _column(self, name: str, table: Vector | None = None) -> Vector:
        """One number per client in the table that the first rank sends."""
        first = _TABLES + _OF_CLIENTS.index(name) * self.n
        return (self._out if table is None else table)[first : first + self.n]

    def switch(self, epoch: int, from_round: int) -> None:
        """Everybody has its weights of this epoch, and uses them from this round on."""
        self._out[_SWITCH_ROUND] = from_round
        self._out[_SWITCH] = epoch

    def lose(self, k: int) -> None:
        """Tell everybody that client k is lost."""
        self._column("lost")[k] = 1.0

    def admit(self, k: int, from_round: int, source: int) -> None:
        """Client k is to join at this round, from the model of another one (-1: from the first model)."""
        self._column("joined")[k] = from_round
        self._column("source")[k] = source

    def all_have_heard(self) -> bool:
        """Whether everybody who is there has worked out the newest coefficients."""
        here = [k for k in range(self.n) if k not in self.transport.progress.gone]
        return all(self.status.value(k, "heard") >= self._out[_SERIAL] for k in here)

    def ask_for_models(self) -> None:
        """Every client is to show its model before its next step."""
        self._out[_SHOW] += 1

    def let_go(self, clean: bool) -> None:
        """The run is over; without everybody there MPI cannot be ended in good order."""
        self._out[_LEAVE] = 1.0 if clean else 2.0

    # --- everybody -------------------------------------------------------------------------------

    def _obey(self, orders: Vector, version: int) -> None:
        self._out[:] = orders
        self._take_part(orders)  # first: who is told to begin, or to go on after a pause, has its terms
        self.status.leaves_at[:] = self._column("leaves", orders)
        self.status.orders[:] = orders[:_LEAVE]

    def _take_part(self, orders: Vector) -> None:
        """Adopt who is lost, at which round to change, and with a new serial number new coefficients."""
        lost = np.flatnonzero(self._column("lost", orders)).tolist()
        for k in lost:
            self.transport.mark_gone(k)
        if orders[_SWITCH] > self._switched and self.me not in self.absent:
            self._switched = int(orders[_SWITCH])
            self.news.append(Switch(self._switched, int(orders[_SWITCH_ROUND])))
        if self.network is None or orders[_SERIAL] <= self._serial:
            return
        self._serial = int(orders[_SERIAL])
        self._adopt_network(orders, set(lost))
        if self.own_ccs:
            self.network.renewals = self._serial - 1  # the serial number is the epoch
            self._announce(self.network.assignments())
        elif self.me in (renewed := self.network.renew()):
            self.news.append(Terms(*renewed[self.me], int(orders[_FROM_ROUND])))
        self.status.rows[self.me, AT["heard"]] = self._serial

    def _adopt_network(self, orders: Vector, lost: set[int]) -> None:
        """Who is there, which edges there are, and the influence that holds."""
        assert self.network is not None
        absent = set(np.flatnonzero(self._column("absent", orders)).tolist())
        for k in range(self.n):
            (self.network.strike_off if k in absent or k in lost else self.network.take_in)(k)
        up = orders[_TABLES + len(_OF_CLIENTS) * self.n :]
        self.network.up = {edge for edge, is_up in zip(self._edges, up, strict=True) if is_up}
        self.network.influence = np.array(self._column("influence", orders), dtype=np.float64)
        self.absent.intersection_update(absent)
        self.absent.update(absent)

    def _announce(self, assignments: dict[int, Assignment]) -> None:
        if self.me in assignments:
            self.news.append(assignments[self.me])

    def lead_oneself(self) -> None:
        """Without the first rank: run CCS with those who are known to be there.

        Nobody names the epoch. So those who know of the same losses take the same number for it.
        """
        assert self.network is not None
        known, count = self.network.known, self.network.renewals
        there = known - self.transport.progress.gone - {FIRST}
        if there != self._alone_with:
            self._alone_with = self.network.known = there
            self.network.renewals = _LEADERLESS + zlib.crc32(repr(sorted(there)).encode())
            self._announce(self.network.assignments())
            self.network.known, self.network.renewals = known, count

    @property
    def joined(self) -> tuple[int, int]:
        """From which round this client takes part, and from whose model it starts."""
        return int(self._column("joined")[self.me]), int(self._column("source")[self.me])

    def starting_from(self, k: int) -> set[int]:
        """Who has joined and starts from client k's model."""
        there: list[int] = np.flatnonzero(self._column("source") == k).tolist()
        return set(there)

    @property
    def models_wanted(self) -> int:
        """How often the first rank has asked for models."""
        return int(self._out[_SHOW])

    @property
    def leaderless(self) -> bool:
        """Whether the first rank is lost, or has been silent for too long."""
        return FIRST in self.transport.progress.gone or self.silence.of(FIRST) > self.patience

    @property
    def over(self) -> int:
        """0 while the run goes on, 1 when all may leave, 2 when they must do so without MPI_Finalize."""
        return int(self._out[_LEAVE])

    def wait_for(self, happened: Callable[[], bool], seconds: float = math.inf) -> bool:
        """Wait, at most so long; whether it has happened."""
        end = time.monotonic() + seconds
        while not happened():
            self.check()
            if time.monotonic() > end:
                return False
            time.sleep(_LOOK_EVERY)
        return True

    def check(self) -> None:
        self.transport.progress.check()
        if self.failure is not None:
            raise self.failure


class RankControl:
    """A client's control (`engines.live.client.Control`) over its rank's channel.

    `most_steps` is where a client finishes by itself if nobody counts the steps of all any more.
    """

    def __init__(
        self,
        channel: RankChannel,
        in_rounds: bool,
        incarnation: int,
        most_steps: float,
        hand_over: Callable[[Vector, int], None],
    ) -> None:
        self.channel, self.status, self.me = channel, channel.status, channel.me
        self.hand_over = hand_over
        self.selecting = OwnSelection(self.me, channel.transport, channel.status, in_rounds)
        self._early: list[Terms] = []  # that came while this client waited
        self.in_rounds, self.incarnation, self.most_steps = in_rounds, incarnation, most_steps
        self.warnings: list[str] = []
        self._shown = 0
        self._cpu_at, self._cpu_before = 0.0, time.process_time()  # of imports, and of making the run

    def report(self, c: int, tally: Tally, settle: bool = False) -> None:
        now = time.perf_counter()
        if settle or now - self._cpu_at >= _CPU_EVERY:
            spent = time.process_time()
            tally.cpu += spent - self._cpu_before
            self._cpu_at, self._cpu_before = now, spent
        self.status.write(self.me, c, self.incarnation, tally)

    def new_terms(self) -> list[Terms]:
        early, self._early = self._early, []
        if self.selecting.under_way and not self.in_rounds and self.channel.leaderless:
            self.channel.lead_oneself()
        return early + self.selecting.take(self._news())

    def _news(self) -> list[News]:
        found = []
        while self.channel.news:  # the channel's thread may add to the same list meanwhile
            found.append(self.channel.news.pop(0))
        return found

    def select(self, assignment: Assignment) -> Terms:
        """Run CCS with the neighbours to its end, and wait for them, unless the run is stopped.

        If the first rank is lost meanwhile, the others run CCS without it. Those who never wait in their
        steps do not wait for that.
        """
        self.set_waits(True)
        self.selecting.take([assignment])
        while (terms := self.selecting.result) is None:
            if self.channel.leaderless:
                self.channel.lead_oneself()
            if self.channel.asked and (not self.in_rounds or self.channel.leaderless):
                return ALONE
            if self.channel.leaderless and not self.in_rounds:
                self._early = self.new_terms()
                return ALONE
            self.channel.check()
            time.sleep(_LOOK_EVERY)
            self.selecting.take(self._news())
        self.set_waits(False)
        return terms

    def first_terms(self, ended: Callable[[], bool]) -> Terms:
        """The terms of a client that has joined, once it has them; ALONE if the run ends before."""
        while not (found := self.new_terms()):
            if ended():
                return ALONE
            self.channel.check()
            time.sleep(_LOOK_EVERY)
        return found[-1]

    def answer(self) -> None:
        """Take part in what neighbours select, while this client takes no steps."""
        self._early = self.new_terms()

    def wants_model(self, published: bool) -> bool:
        """Once for each time that the first rank has asked."""
        wanted, before = self.channel.models_wanted, self._shown
        self._shown = wanted
        return wanted > before

    def order(self, c: int) -> Order:
        channel = self.channel
        if self.status.leaves(self.me, c):
            return "leave"
        if channel.asked and (not self.in_rounds or channel.leaderless):
            return "stop"
        if c > self.most_steps and channel.leaderless:
            return "finish"
        return self.status.order(c)

    def hold(self, c: int) -> Order:
        """Where clients meet in rounds, all stop before the same one, which the first rank names."""
        self.status.enter(self.me, HOLDING)
        while (order := self.order(c)) in HOLDS:
            if order == "pause" and self.channel.leaderless:
                return "go_on"
            if order != "pause" and (self.status.final or not self.in_rounds or self.channel.leaderless):
                return order
            self.channel.check()
            self.answer()
            time.sleep(_LOOK_EVERY)
        self.status.enter(self.me, RUNNING)
        return order

    def set_waits(self, waits: bool) -> None:
        self.status.set_waits(self.me, waits)

    def warn(self, text: str) -> None:
        self.warnings.append(text)
