"""Real clients on a cluster: one rank each, models as messages, and the first rank as supervisor.

Every rank makes the same run and lives its own client with it (`engines.live.client`). The first rank also
supervises (`engines.live.mpi.supervised`) and receives the last models. If it is lost itself, the lowest
rank that is left receives them.
"""

from __future__ import annotations

import time

import numpy as np

from swiftfl.engines.live.client import LiveClient
from swiftfl.engines.live.journal import Journal, journal_file
from swiftfl.engines.live.mpi.control import FIRST, RankControl
from swiftfl.engines.live.mpi.supervised import Supervised
from swiftfl.engines.live.resume import load_start
from swiftfl.engines.live.saves import Saver
from swiftfl.engines.live.status import COLUMNS, FINISHED, READY, RUNNING, STARTING, STOPPED
from swiftfl.engines.terms import Terms
from swiftfl.transports.messages.message import Message
from swiftfl.transports.messages.wire import FINAL, LOST
from swiftfl.vector import Vector

_FAREWELL = 5.0  # seconds for the last messages to arrive
_UNTIL_ENDED = 60.0  # seconds in which the recorder writes its results and ends the job


class Mpi(Supervised):
    """One rank's part in a run. `live` is all of it; afterwards the recorder has everybody's numbers."""

    name = "mpi"

    # --- this rank's client ----------------------------------------------------------

    def live(self) -> None:
        """From the first step to the last; returns when everybody's last model is with the recorder."""
        try:
            self._live()
        finally:
            self.channel.close()
            self.transport.close()

    def _live(self) -> None:
        i = self.me
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
        self.status.enter(i, STARTING)
        self.channel.start()
        client, control, journal = self._client()
        client.announce()
        control.report(client.state.c, client.tally)
        self.status.enter(i, READY)
        self.channel.wait_for(lambda: self.status.started or self.channel.asked or self._headless())
        self.status.enter(i, RUNNING)
        client.began = time.perf_counter()
        if i != FIRST:
            self.supervisor.start_clock()
        outcome = client.run()
        control.report(client.state.c, client.tally, settle=True)
        self.status.enter(i, FINISHED if outcome == "finished" else STOPPED)
        if outcome == "finished":
            self.channel.wait_for(lambda: self.status.released or self._headless())
            client.publish_last_model()
        journal.close()
        self.supervisor.warnings += control.warnings
        self._say_farewell(client.state.x, outcome == "finished")

    def _client(self) -> tuple[LiveClient, RankControl, Journal]:
        i, incarnation = self.me, self.resume.incarnations[self.me]
        start, tally, how, source = load_start(self.folder, self.setup, i, self.resume.starts[i])
        control = RankControl(self.channel, self.in_rounds, incarnation)
        kept = self.folder if self.options.record else None
        journal = Journal(None if kept is None else journal_file(kept, i), control.warn)
        if how != "initial":
            self.transport.set_cell(start.x)
        journal.start(incarnation, self.resume.session, start.c, how, source)
        seconds = None if self.in_rounds else self.options.save_seconds
        saver = Saver(self.folder, i, incarnation, control.warn, seconds, self.options.save_steps)
        terms = Terms(self.setup.weights[i])
        return (
            LiveClient(
                self.setup, i, start, incarnation, self.transport, control, journal, saver, terms, tally
            ),
            control,
            journal,
        )

    # --- the end ---------------------------------------------------------------------------------

    def _headless(self) -> bool:
        return FIRST in self.transport.progress.gone

    @property
    def recorder(self) -> int:
        """The lowest rank that is left: it has the last word."""
        gone = self.transport.progress.gone | (self.world.failed() if self._headless() else set())
        return min(k for k in range(self.n) if k not in gone)

    def _say_farewell(self, x: Vector, finished: bool) -> None:
        """Bring the last models together; then everybody leaves, in good order if all are there."""
        if not finished:
            self.channel.wait_for(lambda: self._all_have_stopped())
            return
        if self.me == self.recorder:
            self._gather(x)
            self.channel.let_go(clean=not self.silent)
            self.channel.tick()
            self.transport.flush(_FAREWELL)
        else:
            self.channel.hushed = True
            self.transport.flush(_FAREWELL)
            self._give(x)
            self.channel.wait_for(lambda: bool(self.channel.over) or self._headless())

    def _all_have_stopped(self) -> bool:
        """On the first rank: nobody runs any more, or there was no time left to wait for that."""
        self._stop_since = getattr(self, "_stop_since", time.monotonic())
        phases = [self.status.phase(i) for i in self._living()]
        patient = time.monotonic() - self._stop_since < 1.0
        return self.me != FIRST or all(p in (STOPPED, FINISHED) for p in phases) or not patient

    def _give(self, x: Vector) -> None:
        """This rank's numbers and last model, to the recorder; to the next one if that is lost."""
        message = self._final(x)
        while (to := self.recorder) != self.me:
            left: list[int] = []
            with self.transport.progress.moving:
                self.transport.progress.send(message.filled, to, FINAL, left.append)
            self.channel.wait_for(lambda left=left: bool(left))  # type: ignore[misc]
            if left[0] != LOST:
                return
        self._gather(x)

    def _gather(self, x: Vector) -> None:
        progress, came = self.transport.progress, dict[int, int]()
        if self.me != FIRST:
            for k in self.world.failed() | {FIRST}:
                progress.gone.add(k)
                self._lose(k, "its rank died")
        self._finals = {self.me: self._final(x)}
        for k in self._living():
            if k != self.me:
                message = self._finals[k] = Message(self._finals[self.me].vector.size, np.float64)
                with progress.moving:
                    progress.receive(message.data, k, FINAL, lambda count, k=k: came.update({k: count}))  # type: ignore[misc]
        self.channel.wait_for(
            lambda: all(k in came or k in progress.gone for k in self._finals if k != self.me)
        )
        for k in list(self._finals):
            if k != self.me and not (k in came and self._finals[k].is_whole(came[k])):
                del self._finals[k]
                self._lose(k, "lost at the end")
        for k, message in self._finals.items():
            self.status.rows[k] = message.vector[: len(COLUMNS)]
        self.supervisor.end()

    def _lose(self, k: int, reason: str) -> None:
        """Note a loss that changes nothing any more."""
        if k not in self.supervisor.lost:
            self.supervisor.lost.append(k)
            self.supervisor.note("lost", k, reason=reason)

    def _final(self, x: Vector) -> Message:
        """A row of the status table, and the model behind it."""
        message = Message(len(COLUMNS) + x.size, np.float64)
        message.fill(np.concatenate([self.status.rows[self.me], x.astype(np.float64)]))
        return message

    def leave(self) -> None:
        """The end of MPI, after everything has been told.

        In good order if all are there. Where ranks have died, MPI's own farewell may wait for ever, so
        each leaves by itself; where one is stopped, the recorder ends the job, or that one would stay.
        """
        if self.channel.over == 2:
            if self.over:
                self.world.abort(0)
            time.sleep(_UNTIL_ENDED)
        elif not self.transport.progress.gone and self.channel.over:
            self.world.leave()
