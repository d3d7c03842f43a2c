"""One client in real time: the loop that serves its verbs over a transport.

The loop knows nothing of how its process was made, nor of the others but through its `Transport`
(models) and its `Control` (what the engine tells it, and what it tells the engine). Every second of a
step is *waiting* (blocked on others), *communication* (publishing, reading, averaging, recording) or
*compute* (all the rest: batch, gradient, update rule), so the three add up to the wall time of a step.

A client that is slowed down sleeps after each gradient, so that computing takes `factor` times as long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any, Literal, Protocol

import numpy as np

from swiftfl.client import Client, State
from swiftfl.engines.discard import contribution, discard_message, kept, movable
from swiftfl.engines.live.background import Background
from swiftfl.engines.live.cell import Cell
from swiftfl.engines.live.inbox import Gate, LazyInbox, NewestInbox, RoundInbox
from swiftfl.engines.live.journal import Journal, version
from swiftfl.engines.live.saves import Saver
from swiftfl.engines.live.status import HOLDS, Order, Tally
from swiftfl.engines.setup import Setup, refuse_rounds
from swiftfl.engines.terms import Terms
from swiftfl.sample import Slope
from swiftfl.transports.base import Lost, Stopped, Transport
from swiftfl.transports.codec import code_bytes
from swiftfl.vector import Vector, mix
from swiftfl.verbs import (
    Add,
    AllReduce,
    AverageWith,
    Exchange,
    Fetch,
    Gradient,
    Load,
    Mix,
    Overlapped,
    Publish,
    Verb,
)

Outcome = Literal["stopped", "finished", "left"]


class Control(Protocol):
    """A client's channel to its engine; no call ever blocks but `hold`."""

    def report(self, c: int, tally: Tally) -> None:
        """Step c is about to start."""

    def new_terms(self) -> list[Terms]:
        """Terms that have arrived since the last call, oldest first."""

    def wants_model(self, published: bool) -> bool:
        """Whether whoever evaluates is to be shown this client's model; `published`: it can see those."""

    def hand_over(self, x: Vector, version: int) -> None:
        """The model before a step, for somebody who joins and starts from it, if there is one."""

    def order(self, c: int) -> Order:
        """What to do before step c."""

    def hold(self, c: int) -> Order:
        """Asked to hold before step c: wait until that is final (stop, finish) or withdrawn (any other)."""

    def set_waits(self, waits: bool) -> None:
        """Whether this client waits for others now, so that nobody takes it for blocked."""

    def warn(self, text: str) -> None:
        """A warning to the user."""


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
    ) -> None:
        self.setup, self.index, self.state, self.incarnation = setup, index, state, incarnation
        self.transport, self.control = transport, control
        self.journal, self.saver = journal, saver
        self.cell = Cell(transport, state.x, setup.own_buffers)
        self.tally = tally or Tally()
        self.gate = Gate(state.x, self.tally.refused)
        self.in_rounds = setup.algorithm.in_rounds
        self.began = time.perf_counter()
        self._mark = self.began  # when the verb that is being served began,
        self._blocked = 0.0  # and how long the transport had been blocked by then
        self._open: list[tuple[int, LazyInbox, set[int]]] = []  # number, inbox, what is on record of it
        self._inboxes = 0  # of this step
        self._left_out = False  # whether this step's move was not finite, and left out
        self._discarded_at = 0  # the step that was counted last as one whose numbers were left out
        self._cell = False
        self._answers = 0  # averages of others with this client's cell that were counted
        self._publishes = False
        self._sent: tuple[int, Vector] | None = None  # the step and the model that were published last
        self._background = Background()
        self._waiting_terms: list[Terms] = []
        self.me: Client = self._adopt(terms)
        self._serve: dict[type, Callable[[Any], object]] = {
            Publish: self._publish,
            Gradient: self._gradient,
            Fetch: self._fetch,
            Mix: self._mix,
            Exchange: self._exchange,
            AllReduce: self._all_reduce,
            Load: self._load,
            AverageWith: self._average_with,
            Overlapped: self._overlapped,
            Add: self._add,
        }
        if not self.in_rounds:
            self._serve |= dict.fromkeys((Exchange, AllReduce), refuse_rounds(setup.algorithm))

    # --- the loop ------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Step after step, to the end or until the engine says stop."""
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
                self._finish()
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
        return self._finish()

    def _report(self) -> None:
        """Tell the engine how far this client is, and what it has counted."""
        answers, self._answers = self._answers, self.transport.answers
        for _ in range(self._answers - answers):
            self.tally.traffic.answer_average(self.state.x.nbytes)
        self.control.report(self.state.c, self.tally)

    def step(self) -> None:
        """One local step of the algorithm, its verbs served."""
        began = time.perf_counter()
        tally = self.tally
        spent = tally.communication + tally.waiting
        self._open.clear()
        self._inboxes, self._left_out = 0, False
        after = self._serve_verbs(self.setup.algorithm.step(self.me, self.state))
        if self._open:
            self._close_inboxes()
        self.state = self._accept(after)
        tally.steps += 1
        tally.compute += time.perf_counter() - began - (tally.communication + tally.waiting - spent)

    def _accept(self, after: State) -> State:
        """The state after a step; a step whose result is not finite is left out (and in a replay, too)."""
        state, discarded = kept(self.state, after, self._left_out)
        self.tally.discarding = int(discarded)
        if discarded:
            self._count_discarded()
        return state

    def _count_discarded(self) -> None:
        """A step whose numbers were left out counts once; of the first one the user is told."""
        if self._discarded_at == self.state.c:
            return
        self._discarded_at = self.state.c
        self.tally.discarded += 1
        if self.tally.discarded == 1:
            self.control.warn(discard_message(self.index, self.state.c))

    def _serve_verbs(self, generator: Generator[Verb, object, State]) -> State:
        serve = self._serve
        try:
            verb = next(generator)
            while True:
                verb = generator.send(serve[type(verb)](verb))
        except StopIteration as end:
            state: State = end.value
            return state

    def announce(self) -> None:
        """Publish the model that this client starts from, so that neighbours can use it.

        Where clients meet in rounds, nobody reads it: they exchange their models.
        """
        if not self.in_rounds:
            self._send(self.state.x, self.state.c)

    def _send(self, x: Vector, c: int) -> None:
        """Publish a model under the version of step c, once: a codec may remember what it has encoded."""
        if self._sent is None or self._sent[0] != c or self._sent[1] is not x:
            self._sent = (c, x)
            self.transport.publish(x, version(self.incarnation, c))

    def _show(self) -> None:
        """Let whoever evaluates see the model, if it is asked for."""
        if self.control.wants_model(self._publishes):
            self.transport.show(self._current().x, version(self.incarnation, self.state.c))
        self.control.hand_over(self.state.x, version(self.incarnation, self.state.c))

    def _stop(self) -> Outcome:
        self._report()
        self._save(self._current())
        self.journal.end(self.state.c)
        return "stopped"

    def _finish(self) -> Outcome:
        """The last model stays with the neighbours, and nobody waits for this client any more."""
        self._send(self.state.x, self.state.c)
        self.transport.finish()
        self.journal.end(self.state.c)
        self._report()
        self._save(self.state)
        return "finished"

    def publish_last_model(self) -> None:
        """When everybody has finished: a cell that others have changed since is published again."""
        if self._cell:
            self.state = self._current()
            self._send(self.state.x, self.state.c)
            self._report()
            self._save(self.state)

    def _save(self, state: State) -> None:
        if not self.saver.save(state, self.tally, time.perf_counter(), self.transport.codec.state()):
            self.tally.saves_failed = self.saver.failed

    def _current(self) -> State:
        """The state to save: with a shared cell, the model is what the cell holds."""
        if not self._cell:
            return self.state
        return State(self.cell.load(), self.state.c, self.state.memory)

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

    def _adopt(self, terms: Terms) -> Client:
        self.journal.terms(self.state.c, terms.w, terms.scale)
        return self.setup.client(self.index, terms.w, terms.scale)

    # --- clocks --------------------------------------------------------------------------------

    def _start(self) -> None:
        """A verb that has to do with others begins."""
        self._mark = time.perf_counter()
        self._blocked = self.transport.waited
        if self.in_rounds:
            self.control.set_waits(True)

    def _communicated(self) -> None:
        """It ends; in part of the time the transport was blocked."""
        waited = self.transport.waited - self._blocked
        self.tally.waiting += waited
        self.tally.communication += time.perf_counter() - self._mark - waited
        if self.in_rounds:
            self.control.set_waits(False)

    # --- wait-free verbs -----------------------------------------------------------------------

    def _publish(self, verb: Publish) -> None:
        self._publishes = True
        self._start()
        self._note_used()
        self._send(verb.x, verb.version)
        self.tally.traffic.publish(verb, self._bytes_of(verb.x))
        self._communicated()

    def _bytes_of(self, x: Vector) -> int:
        """The size of a message with x, which the codec has just encoded."""
        return code_bytes(self.transport.codec, x)

    def _gradient(self, verb: Gradient) -> Slope:
        began = time.perf_counter()
        slope = self.setup.workload.gradient(verb.x, verb.batch)
        now = time.perf_counter()
        costs = self.setup.costs
        factor = costs.gradient(self.index, verb.batch.counter, now - self.began) / (costs.compute or 1.0)
        if factor > 1.0:
            time.sleep((factor - 1.0) * (now - began))
        self.tally.loss_sum += slope.loss
        self.tally.loss_count += 1
        return slope

    def _fetch(self, verb: Fetch) -> NewestInbox:
        gone = self.transport.lost()
        here = [k for k in verb.neighbours if k not in gone] if gone else verb.neighbours
        inbox = NewestInbox(self.transport, here, self.gate)
        self._add_inbox(inbox)
        return inbox

    def _mix(self, verb: Mix) -> Vector:
        inbox = verb.inbox
        self.tally.traffic.mix(verb)
        if not isinstance(inbox, LazyInbox):
            return self.setup.keep_buffers(mix(verb.w, verb.x, inbox), verb.x)
        self._start()
        half = inbox.mix(verb.w, verb.x, self.gate.spare)
        self._note_used()
        inbox.settle()
        self._open = [each for each in self._open if each[1] is not inbox]
        half = self.setup.keep_buffers(half, verb.x)
        self._communicated()
        return half

    # --- what was used -------------------------------------------------------------------------

    def _add_inbox(self, inbox: LazyInbox) -> None:
        self._open.append((self._inboxes, inbox, set()))
        self._inboxes += 1

    def _note_used(self) -> None:
        """Write down what was used so far, before anything that may depend on it is published."""
        for number, inbox, noted in self._open:
            if inbox.fetched.keys() - noted:
                new = {k: which for k, which in inbox.fetched.items() if k not in noted}
                self.journal.fetched(self.state.c, number, new)
                noted.update(new)
            if inbox.exchanged.keys() - noted:
                new = {k: which for k, which in inbox.exchanged.items() if k not in noted}
                self.journal.exchanged(self.state.c, number, new)
                noted.update(new)

    def _close_inboxes(self) -> None:
        """The step is over: nobody uses its inboxes any more."""
        self._start()
        self._note_used()
        for _, inbox, _ in self._open:
            inbox.settle()
        self._open.clear()
        self._communicated()

    # --- waiting verbs -------------------------------------------------------------------------

    def _exchange(self, verb: Exchange) -> RoundInbox:
        self._start()
        self._note_used()
        if self.setup.barrier == "global":
            self.transport.barrier(verb.round)
        if verb.neighbours:
            self.transport.offer(verb.x, verb.round, verb.neighbours)
            self.tally.traffic.exchange(verb, self._bytes_of(verb.x))
        self._communicated()
        inbox = RoundInbox(self.transport, verb.neighbours, verb.round, self.gate)
        self._add_inbox(inbox)
        return inbox

    def _all_reduce(self, verb: AllReduce) -> Vector:
        self._start()
        self._note_used()
        value, weight = contribution(verb)
        if value is not verb.value:
            self._count_discarded()
        mean, clients = self.transport.all_reduce(value, weight, verb.round)
        self.tally.traffic.all_reduce(verb, clients, value.nbytes)
        mean = self.setup.keep_buffers(mean, verb.value)
        self._communicated()
        return mean

    def _load(self, verb: Load) -> Vector:
        self._cell = True
        self._start()
        x = self.cell.load()
        self._communicated()
        return x

    def _average_with(self, verb: AverageWith) -> Vector:
        self._start()
        self._note_used()
        x = self._average(verb.neighbour)
        self._communicated()
        return x

    def _average(self, neighbour: int) -> Vector:
        try:
            x, answered = self.cell.average_with(neighbour), True
        except Lost:
            x, answered = self.cell.load(), False
        self.tally.traffic.average_with(x.nbytes, answered)
        return x

    def _overlapped(self, verb: Overlapped) -> tuple[Slope, Vector]:
        """The averaging runs in the background; counted is what the gradient does not hide of it.

        An averaging waits first and works last: of what is left after the gradient, its work is the end.
        """
        began, blocked = time.perf_counter(), self.transport.waited
        ended = began

        def average() -> Vector:
            nonlocal ended
            with np.errstate(all="ignore"):  # which is a thread's own
                x = self._average(verb.averaging.neighbour)
            ended = time.perf_counter()
            return x

        self._background.begin(average)
        slope = self._gradient(verb.gradient)
        computed = time.perf_counter()
        x = self._background.result()
        left = time.perf_counter() - computed
        worked = ended - began - (self.transport.waited - blocked)
        self.tally.communication += min(left, worked)
        self.tally.waiting += max(0.0, left - worked)
        return slope, x

    def _add(self, verb: Add) -> Vector:
        self._start()
        self._note_used()
        if movable(verb):
            x = self.cell.add(verb.move, verb.statistics)
        else:
            self._left_out = True
            x = self.cell.load()
        self._communicated()
        return x
