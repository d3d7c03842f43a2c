"""Real clients on a cluster: one rank each, models as messages, and the first rank as supervisor.

Every rank makes the same run and lives its own client with it (`engines.live`). The first rank also
supervises: it says go, notices who is lost or silent, ends the run, and receives the last models. If it is
lost itself, the lowest rank that is left receives them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from swiftfl.client import State
from swiftfl.engines.board import COLUMNS, FINISHED, READY, RUNNING, STARTING, STOPPED
from swiftfl.engines.ending import Ending
from swiftfl.engines.journal import Journal, journal_file
from swiftfl.engines.live import LiveClient
from swiftfl.engines.office import FIRST, Office, RankLine
from swiftfl.engines.process import Options
from swiftfl.engines.saves import Saved, Saver
from swiftfl.engines.setup import Setup
from swiftfl.engines.world import Terms
from swiftfl.errors import UserError
from swiftfl.transports.messages.parcel import Parcel
from swiftfl.transports.messages.wire import FINAL, LOST
from swiftfl.transports.mpi import World
from swiftfl.vector import Vector

_NOTICE_ROUNDS, _NOTICE_SECONDS = 3, 1.0  # how far ahead the round lies at which new weights hold
_FAREWELL = 5.0  # seconds for the last messages to arrive


class Mpi:
    """One rank's part in a run. `live` is all of it; afterwards the recorder has everybody's numbers."""

    name = "mpi"

    def __init__(
        self,
        setup: Setup,
        world: World,
        folder: Path | None = None,
        options: Options = Options(),
        saved: Sequence[Saved | None] = (),
        lives: Sequence[int] = (),
    ) -> None:
        self.setup, self.world, self.folder, self.options = setup, world, folder, options
        self.n, self.me = setup.n, world.rank
        self.in_rounds: bool = getattr(setup.algorithm, "in_rounds", True)
        self.network = None if setup.network is None else setup.network()
        self.x0 = setup.workload.initial(setup.seed)
        self.born = self.began = self.ended_at = time.perf_counter()
        self.transport = world.connect([tuple(w.of) for w in setup.weights], self.x0)
        self.office = Office(self.transport, self.network)
        self.board = self.office.board
        self.ending = Ending(self.board, self.in_rounds, options.patience)
        self.office.supervise = self._supervise
        self.restarts = [0] * self.n
        self.lost: list[int] = []
        self.silent: list[int] = []
        self.log: list[dict[str, Any]] = []
        self.warnings: list[str] = []
        self.over = False
        self._saved, self._lives = list(saved) or [None] * self.n, list(lives) or [0] * self.n
        self._finals: dict[int, Parcel] = {}
        self._losses = (0.0, 0.0)
        self._measured_at, self._steps_then = 0, [0.0] * self.n
        self._away: set[int] = set()

    # --- the life of this rank's client ----------------------------------------------------------

    def live(self) -> None:
        """From the first step to the last; returns when everybody's last model is with the recorder."""
        try:
            self._live()
        finally:
            self.office.close()
            self.transport.close()

    def _live(self) -> None:
        i = self.me
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
        self.board.enter(i, STARTING)
        self.office.start()
        client, line, journal = self._client()
        client.announce()
        line.report(client.state.c, client.tally)
        self.board.enter(i, READY)
        self.office.wait_for(lambda: self.board.started or self.office.asked or self._headless())
        self.board.enter(i, RUNNING)
        client.began = time.perf_counter()
        outcome = client.run()
        line.report(client.state.c, client.tally, settle=True)
        self.board.enter(i, FINISHED if outcome == "finished" else STOPPED)
        if outcome == "finished":
            self.office.wait_for(lambda: self.board.released or self._headless())
            client.last_words()
        journal.close()
        self.warnings += line.warnings
        self._say_farewell(client.state.x, outcome == "finished")

    def _client(self) -> tuple[LiveClient, RankLine, Journal]:
        i, saved = self.me, self._saved[self.me]
        life = self._lives[i] if saved is None else max(self._lives[i], saved.life + 1)
        start = State(self.x0, 1) if saved is None else saved.state
        line = RankLine(self.office, self.in_rounds, life, start.c)
        kept = self.folder if self.options.record else None
        journal = Journal(None if kept is None else journal_file(kept, i), line.warn)
        if saved is None:
            journal.start(life, self.options.session, 1, "initial")
        else:
            self.transport.cells.set(start.x)
            journal.start(life, self.options.session, start.c, "saved", saved.life, saved.state.c)
        seconds = None if self.in_rounds else self.options.save_seconds
        saver = Saver(self.folder, i, life, line.warn, seconds, self.options.save_steps)
        terms = Terms(self.setup.weights[i])
        return (
            LiveClient(self.setup, i, start, life, self.transport, line, journal, saver, terms),
            line,
            journal,
        )

    # --- the end ---------------------------------------------------------------------------------

    def _headless(self) -> bool:
        return FIRST in self.transport.pump.gone

    @property
    def recorder(self) -> int:
        """The lowest rank that is left: it has the last word."""
        gone = self.transport.pump.gone | (self.world.failed() if self._headless() else set())
        return min(k for k in range(self.n) if k not in gone)

    def _say_farewell(self, x: Vector, finished: bool) -> None:
        """Bring the last models together; then everybody leaves, in good order if all are there."""
        if not finished:
            self.office.wait_for(lambda: self._all_have_stopped())
            return
        if self.me == self.recorder:
            self._gather(x)
            self.office.let_go(clean=not self.silent)
            self.office.tick()
            self.transport.flush(_FAREWELL)
        else:
            self._give(x)
            self.office.wait_for(lambda: bool(self.office.over) or self._headless())
            self.transport.flush(_FAREWELL)

    def _all_have_stopped(self) -> bool:
        """On the first rank: nobody runs any more, or there was no time left to wait for that."""
        self._stop_since = getattr(self, "_stop_since", time.monotonic())
        phases = [self.board.phase(i) for i in self._living()]
        patient = time.monotonic() - self._stop_since < 1.0
        return self.me != FIRST or all(p in (STOPPED, FINISHED) for p in phases) or not patient

    def _give(self, x: Vector) -> None:
        """This rank's numbers and last model, to the recorder; to the next one if that is lost."""
        parcel = self._final(x)
        while (to := self.recorder) != self.me:
            left: list[int] = []
            with self.transport.pump.moving:
                self.transport.pump.send(parcel.data, to, FINAL, left.append)
            self.office.wait_for(lambda left=left: bool(left))  # type: ignore[misc]
            if left[0] != LOST:
                return
        self._gather(x)

    def _gather(self, x: Vector) -> None:
        pump, came = self.transport.pump, dict[int, int]()
        self._finals = {self.me: self._final(x)}
        for k in self._living():
            if k != self.me:
                parcel = self._finals[k] = Parcel(self._finals[self.me].vector.size, np.float64)
                with pump.moving:
                    pump.receive(parcel.data, k, FINAL, lambda count, k=k: came.update({k: count}))  # type: ignore[misc]
        self.office.wait_for(lambda: all(k in came or k in pump.gone for k in self._finals if k != self.me))
        for k in list(self._finals):
            if k != self.me and not (k in came and self._finals[k].is_whole(came[k])):
                del self._finals[k]
                self._note_loss(k, "lost at the end")
        for k, parcel in self._finals.items():
            self.board.rows[k] = parcel.vector[: len(COLUMNS)]
        self.ended_at = time.perf_counter()
        self.over = True

    def _final(self, x: Vector) -> Parcel:
        """A row of the board, and the model behind it."""
        parcel = Parcel(len(COLUMNS) + x.size, np.float64)
        parcel.fill(np.concatenate([self.board.rows[self.me], x.astype(np.float64)]))
        return parcel

    # --- the supervisor, on the first rank -------------------------------------------------------

    def _living(self) -> list[int]:
        return [i for i in range(self.n) if i not in self.transport.pump.gone]

    def _supervise(self) -> None:
        for i in sorted(self.transport.pump.gone.difference(self.lost)):
            self._lose(i, "its rank died")
        phases = {i: self.board.phase(i) for i in self._living()}
        if not self.board.started:
            if all(phase == READY for phase in phases.values()):
                self.began = time.perf_counter()
                self.board.go()
            return
        self._keep_time(phases)
        if all(phase == FINISHED for phase in phases.values()):
            self.board.release()
        else:
            self._give_up_the_silent(phases)

    def _keep_time(self, phases: dict[int, int]) -> None:
        if self.office.asked:
            self.ending.stop(phases)
            return
        if self.setup.iterations is not None and self.iteration >= self.setup.iterations:
            self.ending.finish(phases)
        if self.in_rounds and self.options.save_seconds is not None:
            self.ending.save(phases, self.options.save_seconds)
        self._measure()

    def _give_up_the_silent(self, phases: dict[int, int]) -> None:
        """When everybody else is done, a rank that has said nothing for a while is not waited for."""
        behind = [i for i, phase in phases.items() if phase != FINISHED]
        now = time.monotonic()
        if all(i != FIRST and now - self.office.last_heard[i] > self.options.patience for i in behind):
            for i in behind:
                self.silent.append(i)
                self._lose(i, f"silent for {self.options.patience:g} s")

    def _lose(self, i: int, reason: str) -> None:
        self._note_loss(i, reason)
        self.office.lose(i)
        self.transport.mark_gone(i)
        self._away.add(i)
        if self.network is not None:
            self.office.renew(self._next_round())

    def _note_loss(self, i: int, reason: str) -> None:
        if i not in self.lost:
            self.lost.append(i)
            at = {"iteration": self.iteration, "time": round(self.now, 3)}
            self.log.append({"event": "lost", **at, "client": i, "reason": reason})

    def _next_round(self) -> int:
        """A round that nobody will have begun before it has been told of it."""
        if not self.in_rounds:
            return 0
        steps = max((self.board.rows[i, 0] for i in self._living()), default=0.0)
        return int(steps + max(_NOTICE_ROUNDS, _NOTICE_SECONDS * steps / max(self.now, 0.1)))

    def _measure(self) -> None:
        """Every so many steps, renew with each client's share of the steps as its influence."""
        network = self.network
        if network is None or not network.dynamics.measured:
            return
        if self.iteration - self._measured_at < network.dynamics.measure_every * self.n:
            return
        steps = self.board.column("c")
        taken = [max(0, round(now - then)) for now, then in zip(steps, self._steps_then, strict=True)]
        network.measure(taken, self._away)
        self._measured_at, self._steps_then = self.iteration, steps
        self.office.renew(self._next_round())

    # --- what can be seen of it, on the recorder -------------------------------------------------

    @property
    def stopped(self) -> bool:
        return self.board.phase(self.me) == STOPPED

    @property
    def iteration(self) -> int:
        return int(sum(max(0.0, c - 1) for c in self.board.column("c")))

    @property
    def now(self) -> float:
        return (self.ended_at if self.over else time.perf_counter()) - self.began

    @property
    def start_seconds(self) -> float:
        return self.began - self.born

    def members(self) -> list[int]:
        return [i for i in range(self.n) if i not in self.lost]

    def models(self) -> list[Vector]:
        """Everybody's last model; x0 for the lost."""
        skip = len(COLUMNS)
        found = {k: parcel.vector[skip:].astype(self.x0.dtype) for k, parcel in self._finals.items()}
        return [found.get(i, self.x0) for i in range(self.n)]

    def train_loss(self) -> float | None:
        """The mean loss of the batches since the last call."""
        before = self._losses
        self._losses = sum(self.board.column("loss_sum")), sum(self.board.column("loss_count"))
        count = self._losses[1] - before[1]
        return (self._losses[0] - before[0]) / count if count > 0 else None

    def given_influence(self) -> list[float]:
        return list(self.setup.influence) if self.network is None else self.network.influence.tolist()

    @property
    def terms(self) -> list[Terms]:
        """As they hold now, for everybody."""
        if self.network is None or not self.network.renewals:
            return [Terms(w) for w in self.setup.weights]
        count, renewed = self.network.renewals, self.network.renew()
        self.network.renewals = count
        return [Terms(*renewed[i]) if i in renewed else Terms(self.setup.weights[i]) for i in range(self.n)]

    @property
    def models_in_memory(self) -> int:
        """As on this rank: its slots, what it received, and its own."""
        return self.n * (1 + self.transport.models_in_memory)

    def fail_if_all_are_lost(self) -> None:
        if not self.members():
            raise UserError("no client is left")
