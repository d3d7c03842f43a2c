"""Real clients on a cluster: one rank each, models as messages, and the first rank as supervisor.

Every rank makes the same run and has one client (`engines.live.client`), which runs in a thread. The first
rank also supervises, in the thread of its control channel, so that no client waits for it; it asks for
models to evaluate, and receives the last ones (`gather`). If it is lost itself, or does not respond, the
lowest rank that does receives them.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

from swiftfl import recycled
from swiftfl.engines.live.client import LiveClient
from swiftfl.engines.live.facts import FactsPlan, StepFacts
from swiftfl.engines.live.journal import Journal, journal_file, version
from swiftfl.engines.live.mpi.channel import FIRST, RankChannel
from swiftfl.engines.live.mpi.control import RankControl
from swiftfl.engines.live.mpi.evaluator import Evaluate, Evaluations
from swiftfl.engines.live.mpi.gather import FinalGather
from swiftfl.engines.live.mpi.handover import Handover
from swiftfl.engines.live.mpi.leaving import leave_job
from swiftfl.engines.live.options import LiveOptions
from swiftfl.engines.live.resume import FirstState, ResumePoint, load_start
from swiftfl.engines.live.saves import Saver
from swiftfl.engines.live.status import FINISHED, READY, RUNNING, STARTING, STOPPED, Tally
from swiftfl.engines.live.supervised import SupervisedRun
from swiftfl.engines.setup import Setup
from swiftfl.engines.terms import Terms
from swiftfl.engines.threads import one_thread
from swiftfl.transports.codec import measured, tell_whose
from swiftfl.transports.mpi import MpiJob
from swiftfl.vector import Vector

_NOTICE_SECONDS = 1.0  # within which every rank has heard of something
_BEFORE_START = 3  # times the patience: how long the first rank waits for one that says nothing
_LAST_LOOK = 1.0  # seconds that the first rank waits for the others when the run is stopped
log = logging.getLogger(__name__)


class MpiEngine(SupervisedRun):
    """One rank's part in a run; `has_result` tells the recorder, which has everybody's numbers at the end."""

    name = "mpi"

    def __init__(
        self,
        setup: Setup,
        job: MpiJob,
        folder: Path | None = None,
        options: LiveOptions = LiveOptions(),
        resume: ResumePoint | None = None,
        facts: FactsPlan | None = None,
    ) -> None:
        super().__init__(setup, self, folder, options, resume, _NOTICE_SECONDS, facts)
        self.job, self.me, self.in_rounds = job, job.rank, setup.algorithm.in_rounds
        self._first_terms = self.first_terms()
        self.evaluations: Evaluations | None = None
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._stop_since: float | None = None
        self._thread = threading.Thread(target=self._work, name="swiftfl-client", daemon=True)

    # --- for whoever runs it ---------------------------------------------------------------------

    def evaluate_with(self, evaluate: Evaluate) -> None:
        """On the first rank, before the start: evaluate models in a process of its own while ranks train."""
        if self.me == FIRST:
            self.evaluations = Evaluations(self.n, self.x0, evaluate)

    def start(self) -> None:
        """Connect with the other ranks, which do the same, and start this rank's client."""
        neighbours, absent = self.neighbourhoods(), self.supervisor.absent
        codec = partial(measured, self.setup.codec)
        self.transport = self.job.connect(neighbours, self.first_message, codec, shown=self.x0)
        if self.in_rounds:
            self.transport.take_part_in_rounds()
        if self.setup.barrier == "global":
            self.transport.take_part_in_barriers()
        self.transport.outside = absent
        own_ccs, patience = self.supervisor.own_ccs is not None, self.options.patience
        self.channel = RankChannel(self.transport, self.network, self.status, patience, absent, own_ccs)
        self.handover = Handover(self.transport, self.channel, self.x0, set(absent))
        self.channel.supervise = self._supervise
        if self.supervisor.asked:
            self.channel.ask()
        self.gather = FinalGather(self.transport, self.channel, self.job.failed, self._note_loss)
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Wait some time; whether this rank's part in the run is over."""
        ended = self._ended.wait(seconds)
        if self._error is not None:
            raise self._error
        return ended

    def stop(self) -> None:
        """Stop where the run can go on later; may be called by a signal handler."""
        self.supervisor.ask()
        if hasattr(self, "channel"):
            self.channel.ask()

    def close(self) -> None:
        """A rank's threads end with its client; the evaluations end here."""
        if self.evaluations is not None:
            self.evaluations.close()
        recycled.let_go()

    # --- this rank's client ----------------------------------------------------------------------

    def _work(self) -> None:
        try:
            one_thread()
            self._run()
        except BaseException as error:
            log.debug("rank %d failed", self.me, exc_info=True)
            self._error = error
        finally:
            self._leave()

    def _leave(self) -> None:
        try:
            self.channel.close()  # which sends a last report
            self.transport.close()
        except BaseException as error:
            self._error = self._error or error
        finally:
            self._ended.set()

    def _run(self) -> None:
        i, channel, status = self.me, self.channel, self.status
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
        status.enter(i, STARTING)
        channel.start()
        if i in self.supervisor.absent and not self._has_joined():
            self._end_without_client()
            return
        client, control, journal = self._client()
        client.announce()
        control.report(client.state.c, client.tally)
        status.enter(i, READY)
        channel.wait_for(lambda: self._may_start(control))
        if not status.started and channel.leaderless:
            self._begin_without_first()
        status.enter(i, RUNNING)
        if i != FIRST:
            self.supervisor.start_clock()
        if client.facts is not None:
            client.facts.begin(self.supervisor.origin)
        outcome = client.run()
        control.report(client.state.c, client.tally, settle=True)
        status.enter(i, STOPPED if outcome == "stopped" else FINISHED)
        if outcome != "stopped":
            channel.wait_for(lambda: self._released(client, control))
            client.publish_last_model()
        journal.close()
        for text in control.warnings:
            self.supervisor.warn(text, i)
        self._end(client.state.x)

    def _end(self, x: Vector) -> None:
        """Stop with the others, or give the last model to the recorder."""
        channel, status = self.channel, self.status
        if status.stopping and not status.released:
            status.enter(self.me, STOPPED)
        if status.phase(self.me) == STOPPED:
            channel.wait_for(self._all_have_stopped)
        elif self.gather.run(x):
            self.supervisor.end()
            self.gather.close()
        else:
            channel.wait_for(lambda: bool(channel.orders.over) or channel.leaderless)

    def _has_joined(self) -> bool:
        """Wait until this client joins as planned; False if the run ends before."""
        news, ended = self.channel.news, self._others_have_ended
        self.channel.wait_for(lambda: bool(news) or ended())
        return bool(news)

    def _others_have_ended(self) -> bool:
        status, channel = self.status, self.channel
        return status.released or status.stopping or channel.leaderless

    def _end_without_client(self) -> None:
        if not self.status.stopping:
            self.status.enter(self.me, FINISHED)
        self._end(self.x0)

    def _first_state(self, control: RankControl) -> tuple[FirstState, Terms]:
        """What this client starts from, and on which terms; of one that joins, a neighbour's model."""
        if self.me in self.channel.absent_at_start:
            terms = control.first_terms(self._others_have_ended)
            from_round, source = self.channel.orders.joined(self.me)
            x, version = self.handover.take(source, self.in_rounds, self._others_have_ended)
            state = self.setup.first_state(x, max(1, from_round))
            return FirstState(state, Tally(), "model", (max(0, source), version)), terms
        start = self.resume.starts[self.me]
        return load_start(self.folder, self.setup, self.me, start), self._first_terms[self.me]

    def _client(self) -> tuple[LiveClient, RankControl, Journal]:
        i, incarnation = self.me, self.resume.incarnations[self.me]
        limit = self.setup.iterations
        share = math.inf if limit is None else math.ceil(limit / self.n)
        control = RankControl(self.channel, self.in_rounds, incarnation, share, self.handover.give)
        first, terms = self._first_state(control)
        start = first.state
        kept = self.folder if self.options.record else None
        journal = Journal(None if kept is None else journal_file(kept, i), control.warn)
        tell_whose(self.transport.codec, i).restore(first.codec)
        if first.how != "initial" and self.sends_models:
            self.transport.set_cell(start.x)
        journal.start(incarnation, self.resume.session, start.c, first.how, first.source)
        seconds = None if self.in_rounds else self.options.save_seconds
        saver = Saver(self.folder, i, incarnation, control.warn, seconds, self.options.save_steps)
        if self.channel.own_ccs and i not in self.channel.absent_at_start:
            terms = control.select(self.first_assignments()[i])
        facts = None if self.facts is None else StepFacts(self.facts, i, control.warn)
        client = LiveClient(
            self.setup,
            i,
            start,
            incarnation,
            self.transport,
            control,
            journal,
            saver,
            terms,
            first.tally,
            facts,
        )
        return client, control, journal

    def _may_start(self, control: RankControl) -> bool:
        """Whether the first step may begin; until then neighbours that run CCS are answered."""
        control.answer()
        return self.status.started or self.channel.asked or self.channel.leaderless

    def _begin_without_first(self) -> None:
        """The first rank has said nothing at all: nobody waits for it, in rounds neither."""
        self.transport.mark_gone(FIRST)
        if FIRST not in self.job.failed():
            self._warn_of_silence(FIRST, self.options.patience)

    def _warn_of_silence(self, i: int, seconds: float) -> None:
        text = f"client {i} was silent for {seconds:g} s before the start: the others begin without it"
        self.supervisor.warn(text, i)
        log.warning("%s", text)

    def _released(self, client: LiveClient, control: RankControl) -> bool:
        """Whether this client, which has finished, may end; until then its model can still be asked for."""
        control.answer()
        if control.wants_model(published=True):
            self.transport.show(client.state.x, client.state.c)
        control.hand_over(client.state.x, version(client.incarnation, client.state.c))
        return self._others_have_ended()

    def _all_have_stopped(self) -> bool:
        """On the first rank: nobody runs any more, or there was no time left to wait for that."""
        self._stop_since = self._stop_since or time.monotonic()
        phases = [self.status.phase(i) for i in self._living()]
        patient = time.monotonic() - self._stop_since < _LAST_LOOK
        return self.me != FIRST or all(p in (STOPPED, FINISHED) for p in phases) or not patient

    # --- the supervisor, on the first rank -------------------------------------------------------

    def _living(self) -> list[int]:
        out = {*self.transport.progress.gone, *self.supervisor.absent}
        return [i for i in range(self.n) if i not in out]

    def _supervise(self) -> None:
        for i in sorted(self.transport.progress.gone.difference(self.supervisor.lost)):
            self.supervisor.lose(i, "its rank died")
        if self.channel.asked:
            self.supervisor.ask()
        living = self._living()
        self.changes.tick(living)
        self.supervisor.tick(living)
        behind = [i for i in living if self.status.phase(i) != FINISHED]
        silent = [i for i in behind if self.channel.silence.of(i) > self.options.patience]
        if self.status.started and behind == silent:
            for i in silent:
                self.kill(i)
        elif not self.status.started:
            self._start_without(silent)
        if self.evaluations is not None:
            self.evaluations.tick(self.transport, living)

    def _start_without(self, silent: list[int]) -> None:
        """Give up who keeps the others from starting."""
        seconds = _BEFORE_START * self.options.patience
        for i in silent:
            if i not in self.gather.silent and self.channel.silence.of(i) > seconds:
                self._warn_of_silence(i, seconds)
                self.kill(i)

    def mark_lost(self, i: int) -> None:
        self.channel.orders.lose(i)
        self.transport.mark_gone(i)

    def renew(self, from_round: int) -> None:
        self.channel.renew(from_round)

    def announce(self) -> int:
        return self.channel.renew(0)

    def switch(self, epoch: int, from_round: int) -> None:
        self.channel.orders.switch(epoch, from_round)

    def prepare(self, i: int) -> None:
        """Its rank is there and waits."""

    def is_ready(self, i: int) -> bool:
        return i not in self.transport.progress.gone

    def admit(self, i: int, from_round: int) -> None:
        assert self.network is not None
        near = self.network.neighbours(i)
        source = max(near, key=lambda k: (self.status.c(k), -k), default=-1)
        self.channel.orders.admit(i, from_round, source)

    def turn_away(self, i: int, reason: str) -> None:
        self.supervisor.warn(f"client {i} does not take part: {reason}", i)

    def all_have_heard(self) -> bool:
        return self.channel.all_have_heard()

    def is_stopped(self, i: int) -> bool:
        return self.channel.silence.of(i) > self.options.patience / 2

    def kill(self, i: int) -> None:
        """A rank cannot be ended from here: nobody waits for it any more."""
        if i not in self.gather.silent and i != FIRST:
            self.gather.silent.add(i)
            self.supervisor.lose(i, f"silent for {self.options.patience:g} s")

    def _note_loss(self, i: int, reason: str) -> None:
        """A loss at the end, which changes nothing any more."""
        if i not in self.supervisor.lost:
            self.supervisor.lost.append(i)
            self.supervisor.note("lost", i, reason=reason)

    # --- evaluations, on the first rank ----------------------------------------------------------

    def request_evaluation(self) -> None:
        """Ask every client for its model, once; the numbers are there some time later."""
        if self.evaluations is not None and self.evaluations.request(self.transport, self):
            self.channel.ask_for_models()

    def take_evaluation(self) -> dict[str, Any] | None:
        """The numbers of the evaluation that was requested, when they are there."""
        if self.evaluations is None:
            return None
        try:
            return self.evaluations.take()
        except RuntimeError as error:
            self.evaluations.close()
            self.evaluations = None
            self.supervisor.warn(f"{error}: no more evaluations during this run")
            return None

    # --- what can be seen of it, complete on the recorder ----------------------------------------

    @property
    def over(self) -> bool:
        return self._ended.is_set()

    @property
    def has_result(self) -> bool:
        """Whether everybody's last model has come to this rank."""
        return self.supervisor.over.is_set()

    @property
    def stopped(self) -> bool:
        return self.status.phase(self.me) == STOPPED

    def figures(self) -> dict[str, Any]:
        return {**self.figures_with(self.renewed_terms()), "mpi": self.job.library}

    @property
    def models(self) -> list[Vector]:
        """Everybody's last model; x0 for the lost, and before the end."""
        last = [self.gather.model_of(i) for i in range(self.n)]
        return [self.x0 if x is None else x.astype(self.x0.dtype) for x in last]

    @property
    def models_in_memory(self) -> int:
        """As on this rank: its slots, what it received, and its own."""
        return self.n * (1 + self.transport.models_in_memory)

    def leave(self) -> None:
        """The end of MPI, after everything has been reported."""
        leave_job(self.job, self.channel, self.gather, self.has_result)
