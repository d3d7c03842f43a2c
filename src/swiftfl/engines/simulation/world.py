"""A world in one process: it runs the clients' generators and serves their verbs.

It leaves one question to its engine: who goes on next. A client runs until it needs a gradient or other
clients, and is then *parked*; an engine lets it go on with `next_event` or `wake`. There is one record
per client; whatever else has a state is a component that gives and takes it (`state`, `restore`).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any, cast

from swiftfl.client import State
from swiftfl.costs import Costs
from swiftfl.engines.discard import discard_message, kept
from swiftfl.engines.engine import WARNING
from swiftfl.engines.saved import Pool, Saved, Tree
from swiftfl.engines.setup import Setup, refuse_rounds
from swiftfl.engines.simulation.batched_mix import BatchedMixes, worthwhile
from swiftfl.engines.simulation.cells import Cells
from swiftfl.engines.simulation.event_log import EventLog
from swiftfl.engines.simulation.event_queue import EventQueue
from swiftfl.engines.simulation.gradients import PendingGradients
from swiftfl.engines.simulation.mailboxes import Links, Mailboxes, Version
from swiftfl.engines.simulation.meetings import Meetings
from swiftfl.engines.simulation.record import Answer, ClientRecord, rerun_step
from swiftfl.engines.simulation.senders import Senders
from swiftfl.engines.terms import Terms
from swiftfl.vector import Vector, mix
from swiftfl.verbs import (
    Add,
    AllReduce,
    AverageWith,
    Exchange,
    Fetch,
    Gradient,
    Inbox,
    Load,
    Mix,
    Overlapped,
    Publish,
)

_log = logging.getLogger(__name__)
PARKED = object()


class World:
    """The state of a run between two events.

    With `timed_gradients`, a client goes on after the time that its gradient takes; without, when its
    engine wakes it. With `changing`, clients come and go (`Churn`).
    """

    def __init__(
        self, setup: Setup, costs: Costs, timed_gradients: bool = True, changing: bool = False
    ) -> None:
        n = setup.n
        x0 = setup.workload.initial(setup.seed)
        first = setup.first_state(x0)  # shared: nobody writes into a state
        self.setup, self.costs, self.n = setup, costs, n
        self.in_rounds = setup.algorithm.in_rounds
        self.timed_gradients, self.changing = timed_gradients, changing
        self.iteration = 0
        self.now = 0.0
        self.active = n  # clients that are there and have not finished
        self.unnoticed: set[int] = set()  # clients that are gone, which nobody knows yet
        self.records = [
            ClientRecord(i, setup.client(i), Terms(setup.weights[i]), first, x0, setup.steps_of(i))
            for i in range(n)
        ]
        self.senders = Senders(n, setup.codec)
        self.size = costs.message(x0.nbytes)  # of a vector that no codec touches
        self.model_size = costs.message(self.senders.most_bytes(x0))
        self.events = EventQueue(n)
        self.gradients = PendingGradients(self.records, setup.workload, x0.nbytes)
        self.mixes = BatchedMixes(self.records, setup.keep_buffers)
        self.links = Links()
        self.mailboxes = Mailboxes(n, x0, costs, self.links, self.model_size)
        self.meetings = Meetings(
            self.records,
            costs,
            self.events,
            self.links,
            self.senders,
            self.size,
            self.model_size,
            everyone=setup.barrier == "global",
        )
        self.cells = Cells(self.records, costs, self.links, self.size, setup.keep_buffers)
        self.log = EventLog()
        # Where nobody sees at once what another publishes at the same time, mixes may wait for each other.
        self._mixes_together = timed_gradients and not changing and costs.latency > 0 and not costs.links
        self._serve: dict[type, Callable[[ClientRecord, Any], object]] = {
            Publish: self._publish,
            Gradient: self._timed_gradient if timed_gradients else self._gradient,
            Overlapped: self._timed_overlapped if timed_gradients else self._gradient,
            Fetch: self._fetch,
            Mix: self._mix,
            Exchange: self._exchange,
            AllReduce: self._all_reduce,
            Load: self._load,
            AverageWith: self._average_with,
            Add: self._add,
        }
        if not self.in_rounds:
            self._serve |= dict.fromkeys((Exchange, AllReduce), refuse_rounds(setup.algorithm))

    # --- a client's steps ----------------------------------------------------------------------

    def start(self) -> None:
        """Let every client that is there, and has weights, run to its first gradient."""
        for record in self.records:
            if record.present and not record.selecting:
                self.start_client(record)

    def start_client(self, record: ClientRecord) -> None:
        """Let a client begin a step, and run until it is parked."""
        self._begin_step(record)
        self._run(record, None)

    def _begin_step(self, record: ClientRecord) -> None:
        if record.next_terms:
            self._take_next_terms(record)
        record.replies.clear()
        record.generator = self.setup.algorithm.step(record.client, record.start)

    def _take_next_terms(self, record: ClientRecord) -> None:
        """Of the terms that wait for a client (by ascending round), the last that already hold."""
        due = [terms for terms in record.next_terms if terms.from_round <= record.start.c]
        if due:
            self.adopt(record, due[-1])
            del record.next_terms[: len(due)]

    def adopt(self, record: ClientRecord, terms: Terms) -> None:
        """A client takes new weights; only ever between two steps."""
        record.terms = terms
        record.client = self.setup.client(record.index, terms.w, terms.scale)

    def adopt_in_step(self, record: ClientRecord, terms: Terms) -> None:
        """A client takes new weights where it is parked: its step is run again, without its effects."""
        self.adopt(record, terms)
        record.generator = self.setup.algorithm.step(record.client, record.start)
        record.parked = next(record.generator)
        for reply in record.replies:
            record.parked = record.generator.send(reply)

    def _run(self, record: ClientRecord, reply: object) -> None:
        """Give a client its reply, and let it run until it is parked again or has finished."""
        serve, replies = self._serve, record.replies
        assert record.generator is not None
        send = record.generator.send
        while True:
            try:
                verb = send(reply)
            except StopIteration as stop:
                if not self._end_step(record, stop.value):
                    return
                self._begin_step(record)
                send = record.generator.send
                reply = None
                continue
            reply = serve[type(verb)](record, verb)
            if reply is PARKED:
                record.parked = verb
                return
            replies.append(reply)

    def wake(self, i: int, reply: object) -> None:
        """Let a parked client go on with the reply that it was parked for."""
        record = self.records[i]
        record.parked = None
        record.replies.append(reply)
        self._run(record, reply)

    def next_event(self) -> None:
        """Let the client whose gradient or reply is ready next go on."""
        time, number, i = self.events.pop()
        if not self.events.expects(i, number):
            return
        self.now = time
        record = self.records[i]
        clock = record.clock
        if record.sleep_due:
            clock.sleep(record.sleep_due)
            record.sleep_due = 0.0
        if record.answer is not None:
            reply, waited, busy = record.answer
            record.answer = None
            if type(record.parked) is Overlapped:
                reply = (self.gradients.take(i), reply)
                clock.compute_until(time - waited - busy)
            elif type(record.parked) is AllReduce:
                reply = self.setup.keep_buffers(cast(Vector, reply), record.parked.value)
            clock.wait(waited)
            clock.communicate(busy)
        elif type(record.parked) is Overlapped:
            self._begin_overlapped(record, record.parked)
            return
        else:
            reply = self.gradients.take(i)
            clock.compute_until(time)
        self.wake(i, reply)

    def act(self, i: int) -> None:
        """Let a client go on that is parked at a gradient which takes no time."""
        record = self.records[i]
        reply: object = self.gradients.take(i)
        if type(record.parked) is Overlapped:
            self.cells.average(record, record.parked.averaging.neighbour)
            reply = (reply, record.model)
        self.wake(i, reply)

    def _end_step(self, record: ClientRecord, state: State) -> bool:
        """Keep the new state; whether the client goes on."""
        x = state.x
        # A quick look that most steps pass; `kept` looks closely.
        if record.discarding or record.move_left_out or state.memory or not math.isfinite(x.dot(x)):
            state = self._settle(record, state)
        record.start = state
        record.model = state.x
        record.steps += 1
        self.iteration += 1
        if record.steps < record.limit:
            return True
        self._finish(record)
        return False

    def _settle(self, record: ClientRecord, end: State) -> State:
        """The state to go on from; a step whose numbers are not finite is counted and reported once."""
        state, record.discarding = kept(record.start, end, record.move_left_out)
        record.move_left_out = False
        if record.discarding:
            self._count_discarded(record)
        return state

    def _count_discarded(self, record: ClientRecord) -> None:
        """Count this step, once, whatever of it was not finite."""
        if record.discarded_at == record.start.c:
            return
        record.discarded_at = record.start.c
        record.discarded += 1
        if record.discarded == 1:
            message = discard_message(record.index, record.start.c)
            _log.warning("%s", message)
            self.note(WARNING, client=record.index, text=message)

    def _finish(self, record: ClientRecord) -> None:
        """The client's last model stays with the neighbours, and nobody waits for it."""
        record.finished = True
        self.active -= 1
        x, _ = self.senders.send(record.index, record.model)
        last = Version(record.clock.now, record.start.c, x)
        self.mailboxes.publish(record.index, last, self.now, record.client.neighbours)
        self.nobody_waits_for(record)

    def nobody_waits_for(self, record: ClientRecord) -> None:
        # While weights change, also clients that this one does not count as neighbours may wait for it.
        waiters = range(self.n) if self.changing else record.client.neighbours
        self.meetings.leave(record.index, waiters, self.now)
        self._reduce()

    def note(self, event: str, **more: object) -> None:
        self.log.note(event, self.iteration, self.now, **more)

    # --- wait-free verbs -----------------------------------------------------------------------

    def _publish(self, record: ClientRecord, verb: Publish) -> None:
        clock = record.clock
        clock.communicate(self.costs.send * len(verb.to))
        x, size = self.senders.send(record.index, verb.x)
        record.traffic.publish(verb, self.costs.message(size))
        self.mailboxes.publish(record.index, Version(clock.now, verb.version, x), self.now, verb.to)

    def _gradient(self, record: ClientRecord, verb: Gradient | Overlapped) -> object:
        self.gradients.add(record.index)
        return PARKED

    def _timed_gradient(self, record: ClientRecord, verb: Gradient) -> object:
        i, now = record.index, record.clock.now
        self.gradients.add(i)
        self.events.schedule(i, now + self.costs.gradient(i, verb.batch.counter, now))
        return PARKED

    def _fetch(self, record: ClientRecord, verb: Fetch) -> Inbox:
        return self.mailboxes.fetch(record.index, verb.neighbours, record.clock.now)

    def _mix(self, record: ClientRecord, verb: Mix) -> object:
        record.clock.communicate(self.costs.mix * len(verb.inbox))
        record.traffic.mix(verb)
        if (
            self._mixes_together
            and (self.mixes.waiting or self.events.another_at(self.now))
            and worthwhile(verb, self.n)
        ):
            self.mixes.waiting.append(record.index)
            return PARKED
        return self.setup.keep_buffers(mix(verb.w, verb.x, verb.inbox), verb.x)

    # --- waiting verbs -------------------------------------------------------------------------

    def _exchange(self, record: ClientRecord, verb: Exchange) -> object:
        self.meetings.exchange(record, verb, self.now)
        return PARKED

    def _all_reduce(self, record: ClientRecord, verb: AllReduce) -> object:
        self.meetings.give(record, verb)
        self._reduce()
        return PARKED

    def _reduce(self) -> None:
        """Serve the reductions to which everybody who is thought to be there has given its value."""
        earliest = self.now if self.changing else 0.0
        for i in self.meetings.reduce(self.active + len(self.unnoticed), earliest):
            self._count_discarded(self.records[i])

    def _load(self, record: ClientRecord, verb: Load) -> Vector:
        return self.cells.load(record, self.iteration)

    def _average_with(self, record: ClientRecord, verb: AverageWith) -> Vector:
        clock = record.clock
        began, seconds = self.cells.average(record, verb.neighbour)
        clock.wait(began - clock.now)
        clock.communicate(seconds)
        return record.model

    def _timed_overlapped(self, record: ClientRecord, verb: Overlapped) -> object:
        """A client that is ahead of the world begins at its own time: others may ask for the cells before."""
        self.gradients.add(record.index)
        if record.clock.now > self.now:
            self.events.schedule(record.index, record.clock.now)
        else:
            self._begin_overlapped(record, verb)
        return PARKED

    def _begin_overlapped(self, record: ClientRecord, verb: Overlapped) -> None:
        """It goes on when both are done; what the gradient does not hide is waiting and communication."""
        i, now = record.index, record.clock.now
        computed = now + self.costs.gradient(i, verb.gradient.batch.counter, now)
        began, seconds = self.cells.average(record, verb.averaging.neighbour)
        waited = max(0.0, began - computed)
        busy = max(0.0, min(seconds, began + seconds - computed))
        record.answer = Answer(record.model, waited, busy)
        self.events.schedule(i, computed + waited + busy)

    def _add(self, record: ClientRecord, verb: Add) -> Vector:
        return self.cells.add(record, verb, self.iteration)

    # --- checkpoints ---------------------------------------------------------------------------

    def state(self, pool: Pool) -> Tree:
        return {
            "iteration": self.iteration,
            "now": self.now,
            "active": self.active,
            "unnoticed": sorted(self.unnoticed),
            "records": [record.state(pool) for record in self.records],
            "events": self.events.state(),
            "gradients": self.gradients.state(pool),
            "mixes": self.mixes.state(),
            "links": self.links.state(),
            "senders": self.senders.state(pool),
            "mailboxes": self.mailboxes.state(pool),
            "exchanges": self.meetings.exchanges.state(pool),
            "reductions": self.meetings.reductions.state(),
            "cells": self.cells.state(),
            "log": self.log.state(),
        }

    def restore(self, saved: Saved) -> None:
        """Take the state of a world of the same setup, and run the steps again to where they were."""
        self.iteration = saved["iteration"].integer()
        self.now = saved["now"].number(0.0)
        self.active = saved["active"].integer(0, self.n)
        self.unnoticed = set(saved["unnoticed"].clients(self.n))
        self.events.restore(saved["events"])
        self.gradients.restore(saved["gradients"])
        self.mixes.restore(saved["mixes"])
        self.links.restore(saved["links"], self.n)
        self.senders.restore(saved["senders"])
        self.mailboxes.restore(saved["mailboxes"])
        self.meetings.exchanges.restore(saved["exchanges"])
        self.cells.restore(saved["cells"])
        self.log.restore(saved["log"])
        for record, part in zip(self.records, saved["records"].items(self.n), strict=True):
            record.restore(part, self.n)
            if not self.changing and record.terms != Terms(self.setup.weights[record.index]):
                part["terms"].fail("has other weights than the run")
            self.adopt(record, record.terms)
            rerun_step(record, self.setup.algorithm, part)
        parked = [record.parked for record in self.records]
        self.meetings.reductions.restore(saved["reductions"], parked)
