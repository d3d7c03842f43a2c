"""One client in real time: its loop, step after step.

The loop knows nothing of how its process was made, nor of the others but through its `Transport`
(models; `VerbServer` serves the verbs of a step over it) and its `Control` (what the engine tells it, and
what it tells the engine).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Literal

import numpy as np

from swiftfl.client import Client, State
from swiftfl.engines.discard import kept
from swiftfl.engines.live.announced import first_published
from swiftfl.engines.live.control import Control
from swiftfl.engines.live.facts import StepFacts
from swiftfl.engines.live.journal import Journal, version
from swiftfl.engines.live.saves import Saver
from swiftfl.engines.live.serving import VerbServer
from swiftfl.engines.live.status import HOLDS, Tally
from swiftfl.engines.setup import Setup
from swiftfl.engines.terms import Terms
from swiftfl.transports.base import Stopped, Transport
from swiftfl.vector import Vector
from swiftfl.verbs import Verb

Outcome = Literal["stopped", "finished", "left"]


class LiveClient:
    """One client, from a state to the end of its run."""

    def __init__(
        self,
        setup: Setup,
        index: int,
        state: State,
        incarnation: int,
        transport: Transport,
        control: Control,
        journal: Journal,
        saver: Saver,
        terms: Terms,
        tally: Tally | None = None,
        facts: StepFacts | None = None,
        show: Callable[[Vector, int], None] | None = None,
    ) -> None:
        """`show` takes models for whoever evaluates, with their versions; by default the transport does."""
        self.setup, self.index, self.incarnation = setup, index, incarnation
        self.state = state = setup.placed(state)
        self.transport, self.control = transport, control
        self.show = transport.show if show is None else show
        self.journal, self.saver, self.facts = journal, saver, facts
        self.tally = tally or Tally()
        self.server = VerbServer(setup, index, state.x, incarnation, transport, control, journal, self.tally)
        if facts is not None:
            facts.look = self.server.ages.newest
        self._answers = 0  # averages of others with this client's cell that were counted
        self._step_began = 0.0  # when the step began,
        self._communicated = self._waited = 0.0  # and what of the client's time was not compute by then
        self._waiting_terms: list[Terms] = []
        self.me: Client = self._adopt(terms)

    # --- the loop ------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Step after step, to the end or until the engine says stop."""
        self.server.began = time.perf_counter()
        with np.errstate(all="ignore"):  # models that are not finite are refused, counted and shown
            return self._run()

    def _run(self) -> Outcome:
        last = self.setup.steps_of(self.index)
        while self.state.c <= last:
            self._report()
            self._take_terms()
            order = self.control.order(self.state.c)
            if order in HOLDS:
                order = self.control.hold(self.state.c)
                self._take_terms()  # a pause may have been for new ones
            if order == "leave":
                self.finish()
                return "left"
            if order == "stop":
                return self._stop()
            if order == "finish":
                break
            now = time.perf_counter()
            self._show()
            if order == "save" or self.saver.due(self.state.c, now):
                self._save(self._current())
            try:
                self.step()
            except Stopped:
                return self._stop()
        return self.finish()

    def _report(self) -> None:
        """Tell the engine how far this client is, and what it has counted."""
        answers, self._answers = self._answers, self.transport.answers
        for _ in range(self._answers - answers):
            self.tally.traffic.answer_average(self.state.x.nbytes)
        self.control.report(self.state.c, self.tally)

    def step(self) -> None:
        """One local step of the algorithm, its verbs served."""
        self._start_clock()
        self._take_over(self.server.run(self.state.c, self.setup.algorithm.step(self.me, self.state)))

    def _start_clock(self) -> None:
        tally = self.tally
        self._communicated, self._waited = tally.communication, tally.waiting
        self._step_began = time.perf_counter()

    def _take_over(self, after: State) -> None:
        """The state after a step, and the time that it took."""
        tally, c = self.tally, self.state.c
        self.state = self._accept(after)
        tally.steps += 1
        communicated, waited = tally.communication - self._communicated, tally.waiting - self._waited
        now = time.perf_counter()
        compute = now - self._step_began - communicated - waited
        tally.compute += compute
        if self.facts is not None:
            began, age = self._step_began, self.server.ages.take()
            self.facts.add(c, began, compute, waited, communicated, tally.loss, age, now)

    # --- for whoever runs the steps verb by verb (`swiftfl.loop`) ---------------------------------

    def begin_step(self) -> Generator[Verb, object, State]:
        """What comes before a step, and the step, whose verbs are to be served by `server.serve`."""
        self._report()
        self._take_terms()
        self._show()
        self._start_clock()
        self.server.begin(self.state.c)
        return self.setup.algorithm.step(self.me, self.state)

    def end_step(self, after: State) -> None:
        """The step has ended with this state."""
        self.server.end()
        self._take_over(after)

    def _accept(self, after: State) -> State:
        """The state after a step; a step whose result is not finite is left out (and in a replay, too)."""
        state, discarded = kept(self.state, after, self.server.left_out)
        self.tally.discarding = int(discarded)
        if discarded:
            self.server.count_discarded()
        return state

    def announce(self) -> None:
        """Publish what this client starts from, so that neighbours can use it.

        Where clients meet in rounds, nobody reads it: they exchange their models.
        """
        if not self.server.sends_models:
            self._show_model()  # mailboxes hold the first message
        elif not self.setup.algorithm.in_rounds:
            x, self.server.publishes = first_published(self.setup, self.me, self.state)
            self.server.send(x, self.state.c)

    def _show(self) -> None:
        """Let whoever evaluates see the model, if it is asked for."""
        if self.control.wants_model(self.server.publishes and self.server.sends_models):
            self._show_model()
        self.control.hand_over(self.state.x, version(self.incarnation, self.state.c))

    def _show_model(self) -> None:
        self.show(self._current().x, version(self.incarnation, self.state.c))

    def _stop(self) -> Outcome:
        self._report()
        self._save(self._current())
        self.journal.end(self.state.c)
        self._close_facts()
        return "stopped"

    def finish(self) -> Outcome:
        """The last model stays with the neighbours, and nobody waits for this client any more."""
        if self.server.sends_models:
            self.server.send(self.state.x, self.state.c)
        else:
            self._show_model()
        self.transport.finish()
        self.journal.end(self.state.c)
        self._report()
        self._save(self.state)
        self._close_facts()
        return "finished"

    def _close_facts(self) -> None:
        if self.facts is not None:
            self.facts.close()

    def publish_last_model(self) -> None:
        """When everybody has finished: a cell that others have changed since is published again."""
        if self.server.shares_cell:
            self.state = self._current()
            self.server.send(self.state.x, self.state.c)
            self._report()
            self._save(self.state)

    def _save(self, state: State) -> None:
        if not self.saver.save(state, self.tally, time.perf_counter(), self.transport.codec.state()):
            self.tally.saves_failed = self.saver.failed

    def _current(self) -> State:
        """The state to save: with a shared cell, the model is what the cell holds."""
        if not self.server.shares_cell:
            return self.state
        return State(self.server.cell.load(), self.state.c, self.state.memory)

    # --- terms ---------------------------------------------------------------------------------

    def _take_terms(self) -> None:
        """Adopt the newest terms that already hold; only ever between two steps."""
        self._waiting_terms += self.control.new_terms()
        if not self._waiting_terms:
            return
        due = [terms for terms in self._waiting_terms if terms.from_round <= self.state.c]
        if due:
            self._waiting_terms = [t for t in self._waiting_terms if t.from_round > self.state.c]
            self.me = self._adopt(due[-1])
            self.tally.renewals += 1

    def _adopt(self, terms: Terms) -> Client:
        self.journal.terms(self.state.c, terms.w, terms.scale)
        return self.setup.client(self.index, terms.w, terms.scale)
