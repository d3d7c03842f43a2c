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
from swiftfl.engines.live.mpi.orders import OrderTable
from swiftfl.engines.live.selecting import News, Switch
from swiftfl.engines.live.status import AT, COLUMNS, StatusTable
from swiftfl.engines.membership import Membership
from swiftfl.engines.terms import Terms
from swiftfl.transports.messages.newest import NewestReceiver, NewestSender
from swiftfl.transports.messages.transport import MessageTransport
from swiftfl.transports.messages.wire import ORDER, STATUS
from swiftfl.vector import Vector

FIRST = 0
"""The client whose process supervises and records the run."""
TICK = 0.05
"""Seconds between two looks of the first rank, and two reports of another one's client."""
_HEARTBEAT = 1.0  # seconds between two messages of the first rank that say nothing new
_SIGN_OF_LIFE = 0.15  # seconds after which a rank reports though its client does not
_LEADERLESS = 1 << 32  # above every epoch that the first rank announces
LOOK_EVERY = 0.005
"""Seconds between two looks of somebody who waits."""
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
    """One rank's end of the control channel.

    On the first rank a thread calls `supervise`, and looks after what the others report. They have no thread
    for it: whoever looks after a rank's messages (which is rung for new orders) also attends to them, and the
    client reports by itself between two steps, when it is awake anyway.
    """

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
        self.orders = OrderTable(self.n, network)
        if network is not None:
            self.orders.describe(network, self.absent)
        self._row = np.zeros(len(COLUMNS))
        self._serial = self._switched = 0
        self._alone_with: set[int] = set()
        self._closing = False
        others = [k for k in range(self.n) if k != FIRST]
        if self.me == FIRST:
            self._to_all = NewestSender(transport.progress, ORDER, self.orders.cells, others)
            self._statuses = {k: NewestReceiver(transport.progress, STATUS, k, self._row) for k in others}
        else:
            self._to_first = NewestSender(transport.progress, STATUS, self._row, [FIRST])
            self._statuses = {FIRST: NewestReceiver(transport.progress, ORDER, FIRST, self.orders.cells)}
        self.silence = Silence(self._statuses)
        self._heard = dict.fromkeys(self._statuses, 0)
        self._final: set[int] = set()  # whose last numbers have come
        self._noting = threading.Lock()
        self._sent: Table = np.zeros(0)
        self._sent_at = 0.0
        self._phase = self._heard_of = -1.0  # as they were last told
        self._version = 0
        self._ticking = threading.RLock()
        self._thread = threading.Thread(target=self._work, name="swiftfl-control", daemon=True)

    def start(self) -> None:
        if self.me == FIRST:
            self._thread.start()
        else:
            self.transport.progress.attend = self.attend

    def ask(self) -> None:
        """Stop where the run can go on later; may be called by a signal handler."""
        self.asked = True
        self.transport.progress.calm = LOOK_EVERY  # there may be little time left
        self.transport.progress.doorbell.wake()

    def close(self) -> None:
        """Nothing more is heard or told, but for the phase in which this rank ends."""
        with self._ticking:
            if self.me != FIRST:
                self.attend()
            self._closing = True
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        try:
            while not self._closing:
                self.transport.progress.turn()  # who reports does not ring for every report
                self.tick()
                time.sleep(LOOK_EVERY if self.asked else TICK)  # asked: there may be little time left
        except BaseException as error:
            self.failure = error
            log.debug("the control channel of rank %d failed", self.me, exc_info=True)

    def tick(self) -> None:
        """On the first rank: hear the others, decide, and give orders."""
        if self.me != FIRST:
            self.attend()
            return
        with self._ticking:
            self.silence.look()
            self._listen()
            self.supervise()
            self._send_orders()

    def attend(self, every: float = _SIGN_OF_LIFE) -> None:
        """On every other rank: obey what came; report a new phase at once, the rest every so many seconds."""
        if self._closing or not self._ticking.acquire(blocking=False):
            return
        try:
            self.silence.look()
            self._listen()
            if not self.silenced:
                self._send_status(every)
            if self.asked and self.leaderless:
                self.transport.mark_gone(FIRST)  # nobody is to wait for it before stopping
        finally:
            self._ticking.release()

    def reported(self) -> None:
        """The client has put down how far it is."""
        if self.me != FIRST and time.monotonic() - self._sent_at >= TICK:
            self.attend(TICK)

    def _listen(self) -> None:
        for k, receiver in self._statuses.items():
            if receiver.count != self._heard[k]:
                self._heard[k] = receiver.count
                self.silence.heard(k)
                receiver.read(self._obey if k == FIRST else self._note_status(k))

    def _send_orders(self) -> None:
        self.orders.take_orders(self.status)
        cells = self.orders.cells
        now, changed = time.monotonic(), not np.array_equal(cells, self._sent)
        if changed or now - self._sent_at > _HEARTBEAT:
            self._version += 1
            self._sent, self._sent_at = cells.copy(), now
            self._to_all.put(cells, self._version, quiet=not changed)
            self._take_part()

    def _send_status(self, every: float) -> None:
        row, now = self.status.rows[self.me], time.monotonic()
        phase = row[AT["phase"]]
        told = phase == self._phase and row[AT["heard"]] == self._heard_of
        if told and not self.asked and now - self._sent_at < every:
            return
        self._phase, self._heard_of, self._sent_at = phase, row[AT["heard"]], now
        self._version += 1
        self._to_first.put(row, self._version, quiet=told and not self.asked)

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
        self.orders["from_round"] = from_round
        self.orders["serial"] += 1
        self.orders.describe(self.network, self.absent)
        self._take_part()
        return self._serial

    def all_have_heard(self) -> bool:
        """Whether everybody who is there has worked out the newest coefficients."""
        here = [k for k in range(self.n) if k not in self.transport.progress.gone]
        return all(self.status.value(k, "heard") >= self.orders["serial"] for k in here)

    def ask_for_models(self) -> None:
        """Every client is to show its model before its next step."""
        self.orders["show"] += 1

    # --- everybody -------------------------------------------------------------------------------

    def _obey(self, cells: Vector, version: int) -> None:
        self.orders.cells[:] = cells
        self._take_part()  # first: who is told to begin, or to go on after a pause, has its terms
        self.orders.give_orders(self.status)

    def _take_part(self) -> None:
        """Adopt who is lost, at which round to change, and with a new serial number new coefficients."""
        orders = self.orders
        for k in orders.lost:
            self.transport.mark_gone(k)
        if orders["switch"] > self._switched and self.me not in self.absent:
            self._switched = orders["switch"]
            self.news.append(Switch(self._switched, orders["switch_round"]))
        if self.network is None or orders["serial"] <= self._serial:
            return
        self._serial = orders["serial"]
        orders.shape(self.network, self.absent)
        if self.own_ccs:
            self.network.renewals = self._serial - 1  # the serial number is the epoch
            self._announce(self.network.assignments())
        elif self.me in (renewed := self.network.renew()):
            self.news.append(Terms(*renewed[self.me], orders["from_round"]))
        self.status.rows[self.me, AT["heard"]] = self._serial

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
    def leaderless(self) -> bool:
        """Whether the first rank is lost, or has been silent for too long."""
        return FIRST in self.transport.progress.gone or self.silence.of(FIRST) > self.patience

    def wait_for(self, happened: Callable[[], bool], seconds: float = math.inf) -> bool:
        """Wait, at most so long; whether it has happened."""
        end = time.monotonic() + seconds
        while not happened():
            if time.monotonic() > end:
                return False
            self.pause()
        return True

    def pause(self) -> None:
        """A short sleep of a client that waits, and so can look after messages meanwhile."""
        self.check()
        self.transport.progress.turn()
        if self.me != FIRST:
            self.attend(TICK)
        time.sleep(LOOK_EVERY)

    def check(self) -> None:
        self.transport.progress.check()
        if self.failure is not None:
            raise self.failure
