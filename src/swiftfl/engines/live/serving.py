"""Serves the verbs of one client in real time, over its transport.

Every second of a step is *waiting* (blocked on others), *communication* (publishing, reading, averaging,
recording) or *compute* (all the rest: batch, gradient, update rule), so the three add up to the wall time of
a step.

A client that is slowed down sleeps after each gradient, so that computing takes `factor` times as long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any, NoReturn

import numpy as np

from swiftfl.algorithm import first_message_of
from swiftfl.client import State
from swiftfl.engines.discard import contribution, discard_message, movable
from swiftfl.engines.live.announced import sent_already
from swiftfl.engines.live.background import Background
from swiftfl.engines.live.cell import Cell
from swiftfl.engines.live.control import Control
from swiftfl.engines.live.inbox import Gate, LazyInbox, NewestInbox, RoundInbox
from swiftfl.engines.live.journal import Journal, version
from swiftfl.engines.live.model_ages import ModelAges
from swiftfl.engines.live.status import Tally
from swiftfl.engines.setup import Services, Setup, refuse_rounds
from swiftfl.errors import UserError
from swiftfl.sample import Slope
from swiftfl.transports.base import Lost, Transport
from swiftfl.transports.codec import code_bytes, is_exact
from swiftfl.vector import Vector, mix
from swiftfl.verbs import (
    Add,
    AllReduce,
    AverageWith,
    Exchange,
    Fetch,
    Gather,
    Gradient,
    Load,
    Mix,
    Overlapped,
    Publish,
    Scatter,
    Verb,
)
from swiftfl.workload.base import placed
from swiftfl.workload.transfer import known_since, moment


class VerbServer:
    """What the steps of one client ask for: models out, models in, averages and gradients."""

    def __init__(
        self,
        setup: Setup,
        index: int,
        x: Vector,
        incarnation: int,
        transport: Transport,
        control: Control,
        journal: Journal,
        tally: Tally,
    ) -> None:
        self.setup, self.index, self.incarnation = setup, index, incarnation
        self.transport, self.control, self.journal, self.tally = transport, control, journal, tally
        self.cell = Cell(transport, x, setup.own_buffers)
        first_message = first_message_of(setup.algorithm)
        self.sends_models = first_message is None
        self.gate = Gate(x if first_message is None else first_message(x), tally.refused)
        self.ages = ModelAges(setup, transport, self.gate, tally)
        self.in_rounds = setup.algorithm.in_rounds
        self.began = time.perf_counter()
        self.publishes = False  # whether the algorithm does,
        self.shares_cell = False  # and whether its model is one that others change
        self.left_out = False  # whether this step's move was not finite, and left out
        self._c = 0  # the step
        self._mark = self.began  # when the verb that is being served began,
        self._blocked = 0.0  # and how long the transport had been blocked by then
        self._open: list[tuple[int, LazyInbox, set[int]]] = []  # number, inbox, what is on record of it
        self._inboxes = 0  # of this step
        self._discarded_at = 0  # the step that was counted last as one whose numbers were left out
        self._sent: tuple[int, Vector] | None = None  # the step and the model that were published last
        self._background = Background()
        self._sending, self._is_sending = Background(), False  # a model that comes down from a device
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
            Scatter: self._refuse_fragments,
            Gather: self._refuse_fragments,
        }
        self._serve = Services(self._serve)
        if not self.in_rounds:
            self._serve |= dict.fromkeys((Exchange, AllReduce), refuse_rounds(setup.algorithm))

    def run(self, c: int, step: Generator[Verb, object, State]) -> State:
        """Step c, its verbs served, up to the state that it ends with."""
        self.begin(c)
        after = self._serve_verbs(step)
        self.end()
        return after

    def begin(self, c: int) -> None:
        """Step c begins; whoever runs it verb by verb calls `serve` for each, and `end` at last."""
        self._c, self._inboxes, self.left_out = c, 0, False
        self._open.clear()

    def serve(self, verb: Verb) -> object:
        """The reply to one verb."""
        return self._serve[type(verb)](verb)

    def end(self) -> None:
        """The step is over: nobody uses its inboxes any more."""
        self._have_sent()
        if self._open:
            self._close_inboxes()

    def _serve_verbs(self, step: Generator[Verb, object, State]) -> State:
        serve = self._serve
        try:
            verb = next(step)
            while True:
                verb = step.send(serve[type(verb)](verb))
        except StopIteration as end:
            state: State = end.value
            return state

    def send(self, x: Vector, c: int) -> None:
        """Publish a model under the version of step c, once: a codec may remember what it has encoded."""
        self._check_length(x)
        if not sent_already(self._sent, c, x):
            self._sent = (c, x)
            self.transport.publish(x, version(self.incarnation, c))

    def count_discarded(self) -> None:
        """A step whose numbers were left out counts once; of the first one the user is told."""
        if self._discarded_at == self._c:
            return
        self._discarded_at = self._c
        self.tally.discarded += 1
        if self.tally.discarded == 1:
            self.control.warn(discard_message(self.index, self._c))

    # --- clocks --------------------------------------------------------------------------------

    def _start(self) -> None:
        """A verb that has to do with others begins."""
        self._mark = time.perf_counter()
        self._have_sent()
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
        self.publishes = True
        self._start()
        self._note_used()
        if isinstance(verb.x, np.ndarray) or not is_exact(self.transport.codec):
            self.send(verb.x, verb.version)
        else:
            since = moment(verb.x)
            self._sending.begin(lambda: self._send_beside(verb, since))
            self._is_sending = True
        self.tally.traffic.publish(verb, self._bytes_of(verb.x))
        self._communicated()

    def _send_beside(self, verb: Publish, since: object) -> Vector:
        """A model on a device comes down while the gradient is computed; nobody else uses the transport."""
        with known_since(since):
            self.send(verb.x, verb.version)
        return verb.x

    def _have_sent(self) -> None:
        if self._is_sending:
            self._is_sending = False
            self._sending.result()

    def _check_length(self, x: Vector) -> None:
        """Neighbours could not average a vector of another length."""
        if x.shape != (self.gate.size,):
            raise UserError(
                f"{self.setup.algorithm.name} sends a vector of shape {x.shape} at step {self._c}, but its "
                f"messages have {self.gate.size} numbers: send whole models, or let a method "
                "first_message(x0) say how long they are (docs/verbs.md)"
            )

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
        self.tally.loss = slope.loss
        self.tally.loss_sum += slope.loss
        self.tally.loss_count += 1
        return slope

    def _fetch(self, verb: Fetch) -> NewestInbox:
        self._have_sent()
        gone = self.transport.lost()
        here = [k for k in verb.neighbours if k not in gone] if gone else verb.neighbours
        c, number = self._c, self._inboxes
        inbox = NewestInbox(
            self.transport, here, self.gate, self.ages.paces, lambda ages: self.journal.ages(c, number, ages)
        )
        self._add_inbox(inbox)
        return inbox

    def _mix(self, verb: Mix) -> Vector:
        inbox = verb.inbox
        self.tally.traffic.mix(verb)
        if not isinstance(inbox, LazyInbox):
            if verb.rule is not None:
                return self.setup.mixed(verb, inbox)
            return self.setup.keep_buffers(mix(verb.w, verb.x, inbox), verb.x)
        self._start()
        if verb.rule is None:
            half = self.setup.keep_buffers(inbox.mix(verb.w, verb.x, self.gate.spare), verb.x)
        else:
            half = self.setup.mixed(verb, inbox.pinned(verb.w.of))
        self._note_used()
        self.ages.note(inbox)
        inbox.settle()
        self._open = [each for each in self._open if each[1] is not inbox]
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
                self.journal.fetched(self._c, number, new)
                noted.update(new)
            if inbox.exchanged.keys() - noted:
                new = {k: which for k, which in inbox.exchanged.items() if k not in noted}
                self.journal.exchanged(self._c, number, new)
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
        if verb.receivers:
            self._check_length(verb.x)
            self.transport.offer(verb.x, verb.round, verb.receivers)
            self.tally.traffic.exchange(verb, self._bytes_of(verb.x))
        self._communicated()
        inbox = RoundInbox(self.transport, verb.neighbours, verb.round, self.gate, self.sends_models)
        self._add_inbox(inbox)
        return inbox

    def _all_reduce(self, verb: AllReduce) -> Vector:
        self._start()
        self._note_used()
        value, weight = contribution(verb)
        if value is not verb.value:
            self.count_discarded()
        mean, clients = self.transport.all_reduce(value, weight, verb.round)
        self.tally.traffic.all_reduce(verb, clients, value.nbytes)
        mean = self.setup.keep_buffers(self._placed(mean), verb.value)
        self._communicated()
        return mean

    def _load(self, verb: Load) -> Vector:
        self._refuse_owner(verb)
        self.shares_cell = True
        self._start()
        x = self._placed(self.cell.load())
        self._communicated()
        return x

    def _average_with(self, verb: AverageWith) -> Vector:
        self._start()
        self._note_used()
        x = self._placed(self._average(verb.neighbour))
        self._communicated()
        return x

    def _average(self, neighbour: int) -> Vector:
        self.shares_cell = True
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
        there = time.perf_counter()
        left, worked = there - computed, ended - began - (self.transport.waited - blocked)
        self.tally.waiting += max(0.0, left - worked)
        x = self._placed(x)  # not in the background: a thread finds on a device what it put there itself
        self.tally.communication += min(left, worked) + time.perf_counter() - there
        return slope, x

    def _refuse_owner(self, verb: Load | Add) -> None:
        if verb.owner not in (None, self.index) or (isinstance(verb, Add) and verb.together > 1):
            raise UserError(
                f"{self.setup.algorithm.name} asks for another client's cell, or has moves collected, which "
                "processes cannot do yet: use --engine virtual or sampled"
            )

    def _refuse_fragments(self, verb: Scatter | Gather) -> NoReturn:
        raise UserError(
            f"{self.setup.algorithm.name} sends fragments of models, which processes cannot do yet: "
            "use --engine virtual or sampled"
        )

    def _add(self, verb: Add) -> Vector:
        self._refuse_owner(verb)
        self.shares_cell = True
        self._start()
        self._note_used()
        if movable(verb):
            x = self.cell.add(verb.move, verb.statistics)
        else:
            self.left_out = True
            x = self.cell.load()
        x = self._placed(x)
        self._communicated()
        return x

    def _placed(self, x: Vector) -> Vector:
        """What came by way of host memory, where the gradient of it may be computed."""
        return placed(self.setup.workload, x)
