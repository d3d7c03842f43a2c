"""What leads every live run, whoever makes its processes: who is alive, who is lost, when all stop.

An engine owns a supervisor and calls `tick` every few hundredths of a second; no client ever waits for it.
What the supervisor decides, the engine carries out (`Clients`): it knows how to reach its clients.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Mapping
from typing import Any, Protocol

from swiftfl.algorithm import warning_of_a_loss
from swiftfl.engines.engine import WARNING
from swiftfl.engines.live.common_round import CommonRound
from swiftfl.engines.live.options import LiveOptions
from swiftfl.engines.live.patience import Patience, Processes
from swiftfl.engines.live.selecting import Epochs
from swiftfl.engines.live.status import FINISHED, READY, STOPPED, StatusTable
from swiftfl.engines.setup import Setup
from swiftfl.errors import UserError
from swiftfl.graph.coefficients import promised

_log = logging.getLogger(__name__)
_NOTICE_ROUNDS = 3  # how far ahead the round lies, at least, from which new weights hold


class Clients(Processes, Protocol):
    """How an engine carries out what its supervisor decides."""

    def mark_lost(self, i: int) -> None:
        """Tell everybody that nothing more comes from client i."""

    def renew(self, from_round: int) -> None:
        """Renew the coefficients among the known clients; they hold from this round on."""

    def announce(self) -> int:
        """Tell the known clients that they are to run CCS anew, and each its part in it; the epoch."""

    def switch(self, epoch: int, from_round: int) -> None:
        """Everybody has its weights of this epoch: they hold from this round on."""


class Supervisor:
    """The state of a live run, and its decisions.

    `elapsed` are the seconds of earlier sessions: the run's clock goes on from there. `notice_seconds` is how
    long it takes, at most, until every client has heard of something.
    """

    def __init__(
        self,
        setup: Setup,
        options: LiveOptions,
        clients: Clients,
        elapsed: float,
        notice_seconds: float,
        status: StatusTable | None = None,
    ) -> None:
        self.setup, self.options, self.clients = setup, options, clients
        self.n, self.in_rounds = setup.n, setup.algorithm.in_rounds
        self.network = None if setup.network is None else setup.network()
        self.status = status or StatusTable(self.n)
        self.common = CommonRound(self.status, self.in_rounds)
        self.patience = Patience(self.status, options, clients, self.warn)
        self.own_ccs = None if setup.ccs == "central" else Epochs(self.status)
        if self.own_ccs is not None and self.network is None:
            raise UserError("clients that run CCS themselves need a network that can be renewed")
        self.lost: list[int] = []  # who is not there now, though it should be
        self.absent: set[int] = set()  # who is not there as planned: before it joins, after it has left
        self.skipped = [0] * self.n  # rounds before a client joined, which it has not taken
        self.joining: set[int] = set()  # who has been started again and takes no part yet
        self.restarts = [0] * self.n
        self.warnings: list[str] = []
        self.over = threading.Event()
        self._elapsed, self._notice_seconds = elapsed, notice_seconds
        self._made = time.perf_counter()
        self._began: float | None = None
        self._ended: float | None = None
        self._asked = False  # not an Event: a signal handler may set it
        self._log: list[dict[str, Any]] = []
        self._logged = 0
        self._measured_at, self._steps_then = 0, [0.0] * self.n
        self._first_c = 0.0
        self.paused_at: int | None = None  # the round before which all hold, while they get new weights
        self.renewed_from = 0  # the round from which the newest weights hold
        self._away: set[int] = set()  # who was not there all the time since the last measurement
        self._isolated: set[int] = set()

    # --- what can be read at any time ------------------------------------------------------------

    @property
    def iteration(self) -> int:
        """Client steps in all, also those of earlier incarnations that a save kept."""
        taken = zip(self.status.column("c"), self.skipped, strict=True)
        return int(sum(max(0.0, c - 1 - skipped) for c, skipped in taken))

    @property
    def now(self) -> float:
        """Seconds from the first step on, those of earlier sessions included."""
        if self._began is None:
            return self._elapsed
        return self._elapsed + (self._ended or time.perf_counter()) - self._began

    @property
    def origin(self) -> float:
        """When the run's clock showed zero, by `time.perf_counter`."""
        return (self._began or time.perf_counter()) - self._elapsed

    @property
    def start_seconds(self) -> float:
        """How long it took from the making of the run to its first step."""
        return (self._began or time.perf_counter()) - self._made

    @property
    def asked(self) -> bool:
        """Whether somebody has asked for a stop."""
        return self._asked

    @property
    def ending(self) -> bool:
        """Whether the run is being stopped, or has taken all its steps."""
        limit = self.setup.iterations
        return self._asked or (limit is not None and self.iteration >= limit)

    def ask(self) -> None:
        """Stop where the run can go on later; may be called in a signal handler."""
        self._asked = True

    @property
    def stopped(self) -> bool:
        """Whether the run ended because it was asked to, before everybody had finished."""
        return self.patience.cut_off or any(self.status.phase(i) == STOPPED for i in range(self.n))

    def members(self) -> list[int]:
        """The clients whose models count."""
        return [i for i in range(self.n) if i not in self.lost and i not in self.absent]

    def take_log(self) -> list[dict[str, Any]]:
        """What happened since the last call."""
        new = self._log[self._logged :]
        self._logged += len(new)
        return new

    # --- what is noted -----------------------------------------------------------------------------

    def note(self, event: str, client: int | None = None, **more: object) -> None:
        """Put an event into the log."""
        row: dict[str, Any] = {"event": event, "iteration": self.iteration, "time": round(self.now, 3)}
        self._log.append({**row, **({} if client is None else {"client": client}), **more})
        _log.debug("%s", self._log[-1])

    def warn(self, text: str, client: int | None = None) -> None:
        """A warning to the user."""
        self.warnings.append(text)
        self.note(WARNING, client, text=text)

    # --- decisions ---------------------------------------------------------------------------------

    def tick(self, living: Collection[int]) -> None:
        """Look at the clients whose processes live, and decide."""
        phases = {i: self.status.phase(i) for i in living}
        selected = self.own_ccs is None or self._settle(self.own_ccs)
        if not self.status.started and selected and phases and all(p == READY for p in phases.values()):
            self._go()
        self.patience.watchdog.look(phases)
        if self.asked:
            self._stop(phases)
        elif self.status.started:
            self._keep_time(phases)
        if self.status.started and all(phase == FINISHED for phase in phases.values()):
            self.status.release()
        else:
            self.patience.watch(phases, self.asked)

    def end(self) -> None:
        """The run is over."""
        self._ended = time.perf_counter()
        self.over.set()

    def start_clock(self) -> None:
        """The first steps are taken now."""
        self._began = time.perf_counter()
        self._steps_then = self.status.column("c")
        self._first_c, self._measured_at = max(self._steps_then), self.iteration

    def _go(self) -> None:
        self.start_clock()
        self.status.go(self.origin)

    def _keep_time(self, phases: Mapping[int, int]) -> None:
        """What happens by the clock or by the count of steps."""
        if self.setup.iterations is not None and self.iteration >= self.setup.iterations:
            self.common.approach(phases, self.status.finish_at)
        if self.in_rounds and self.options.save_seconds is not None:
            self.common.save(phases, self.options.save_seconds, self.next_round())
        if self._measure():
            self.renew()

    def _stop(self, phases: Mapping[int, int]) -> None:
        """Everybody stops and saves."""
        if not self.status.started:
            self._go()
        self.common.approach(phases, self.status.stop_at)
        self.patience.wait_for_stop(phases)

    # --- losses and returns ------------------------------------------------------------------------

    def lose(self, i: int, reason: str) -> None:
        """Client i has ended without finishing: the others go on without it."""
        self.note("lost", i, reason=self.patience.given_up.get(i, reason))
        if i not in self.lost:
            self.lost.append(i)
        self.absent.discard(i)
        self.joining.discard(i)
        self.clients.mark_lost(i)
        self._away.add(i)
        if self.network is not None:
            self.network.strike_off(i)
            self.renew()
        self._warn_of_isolation()
        warning = warning_of_a_loss(self.setup.algorithm)
        if warning is not None:
            self.warn(f"client {i} is lost: {warning}", i)

    def may_restart(self, i: int) -> bool:
        """Whether a client that was lost is to be started again."""
        enough = self.restarts[i] >= self.options.most_restarts
        return self.options.restart_lost and not (enough or self.asked or i in self.patience.given_up)

    def rejoin(self, i: int, from_round: int) -> None:
        """Client i is back, and a neighbour again from this round on."""
        self.lost.remove(i)
        self.joining.discard(i)
        self.note("join", i)
        if self.network is not None:
            self.network.take_in(i)
            self.renew(from_round)

    def join(self, i: int, from_round: int) -> None:
        """Client i, which was not there, takes part from this round on; a renewal follows."""
        self.absent.discard(i)
        self.joining.discard(i)
        self._away.add(i)
        self.skipped[i] += max(0, from_round - max(1, int(self.status.c(i))))
        self.note("join", i)

    def leave(self, i: int, from_round: int) -> None:
        """Client i takes no part from this round on, and saves and ends; a renewal follows."""
        self.absent.add(i)
        self._away.add(i)
        self.status.leaves_at[i] = from_round
        self.note("leave", i)

    def _warn_of_isolation(self) -> None:
        """Name the clients that have just lost their last neighbour."""
        alone = {i for i in self.members() if self.setup.weights[i].of and not self._neighbours(i)}
        new, self._isolated = sorted(alone - self._isolated), alone
        for i in new:
            self.warn(f"client {i} has lost all its neighbours and trains alone", i)

    def _neighbours(self, i: int) -> list[int]:
        if self.network is not None:
            return self.network.neighbours(i)
        return [k for k in self.setup.weights[i].of if k not in self.lost]

    # --- coefficients ------------------------------------------------------------------------------

    def renew(self, from_round: int | None = None) -> None:
        """Have the coefficients renewed among those who are known to be there."""
        assert self.network is not None
        components, checked = self.network.components(), promised(self.network.method)
        about = {"clients": sum(map(len, components)), "components": len(components)}
        self._warn_of_isolation()
        if self.own_ccs is not None:
            self.note("renew", **about)
            self.own_ccs.announce(self.clients.announce())
            return
        self.renewed_from = self.next_round() if from_round is None else from_round
        self.clients.renew(self.renewed_from)
        self.note("renew", **about, checked=checked)

    @property
    def selected(self) -> bool:
        """Whether no client still runs CCS."""
        return self.own_ccs is None or self.own_ccs.settled

    def _settle(self, epochs: Epochs) -> bool:
        """Whether the clients have ended their newest run of CCS; who meets in rounds then changes at one."""
        assert self.network is not None
        before = epochs.settled
        if epochs.settle(self.network.known):
            self.note("ccs", None, epoch=epochs.epoch, **self._check_selected(epochs), **epochs.figures())
            if self.in_rounds and epochs.epoch:
                self.renewed_from = self.next_round() if self.status.started else 0
                self.clients.switch(epochs.epoch, self.renewed_from)
        return before  # nobody begins before it has been told of a change

    def _check_selected(self, epochs: Epochs) -> dict[str, str]:
        """Whether clients have selected, bit for bit, weights for which (a)-(d) are asserted here.

        Not those of the start: they are made, and checked, before the run.
        """
        if not epochs.epoch:
            return {}
        assert self.network is not None
        unlike = epochs.unlike({i: w for i, (w, _) in self.network.coefficients().items()})
        for i in unlike:
            self.warn(f"client {i} has selected other weights than CCS gives in epoch {epochs.epoch}", i)
        return {} if unlike else {"checked": promised(self.network.method)}

    def next_round(self, joining: int | None = None) -> int:
        """A round that nobody will have begun before it has been told of it.

        For a client that joins again it is also one that this client has never begun: offers are made once.
        """
        if not self.in_rounds:
            return 0
        if self.paused_at is not None:
            return self.paused_at
        there = {*self.members()} - self.joining | ({joining} if joining is not None else set())
        furthest = max((self.status.c(i) for i in there), default=0.0)
        passed = max(self.now - self._elapsed, 0.1)
        ahead = self._notice_seconds * max(0.0, furthest - self._first_c) / passed
        soon = int(furthest + max(_NOTICE_ROUNDS, ahead))
        return max(soon, self.renewed_from)  # terms that were decided later must not hold earlier

    def _measure(self) -> bool:
        """Every so many steps, take each client's share of them as its influence; whether it was time."""
        network = self.network
        if network is None or not network.dynamics.measured:
            return False
        if self.iteration - self._measured_at < network.dynamics.measure_every * self.n:
            return False
        steps = self.status.column("c")
        taken = [max(0, round(now - then)) for now, then in zip(steps, self._steps_then, strict=True)]
        network.measure(taken, self._away)
        self._away = {*self.lost, *self.absent}
        self._measured_at, self._steps_then = self.iteration, steps
        return True
