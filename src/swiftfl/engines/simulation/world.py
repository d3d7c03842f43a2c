"""A world in one process: it runs the clients' generators, step after step.

It leaves one question to its engine: who goes on next. A client runs until it needs a gradient or other
clients, and is then *parked*; an engine lets it go on with `next_event` or `wake`. Verbs are served by the
base class (`serving.py`), which has one record per client, and components for whatever else has a state.
"""

from __future__ import annotations

import math
from heapq import heappop
from typing import cast

from swiftfl.client import State
from swiftfl.engines.discard import kept
from swiftfl.engines.saved import Pool, Saved, Tree
from swiftfl.engines.setup import require_generator
from swiftfl.engines.simulation.mailboxes import Version
from swiftfl.engines.simulation.record import ClientRecord, rerun_step
from swiftfl.engines.simulation.serving import PARKED, VerbServing
from swiftfl.engines.terms import Terms
from swiftfl.vector import Vector
from swiftfl.verbs import AllReduce, Exchange, Inbox, Overlapped
from swiftfl.workload.base import placed


class World(VerbServing):
    """The state of a run between two events.

    With `timed_gradients`, a client goes on after the time that its gradient takes; without, when its
    engine wakes it. With `changing`, clients come and go (`Churn`).
    """

    # --- a client's steps ----------------------------------------------------------------------

    def start(self) -> None:
        """Let every client that is there, and has weights, run to its first gradient."""
        for record in self.records:
            if record.present and not record.selecting:
                self.start_client(record)

    def start_client(self, record: ClientRecord) -> None:
        """Let a client begin a step, and run until it is parked."""
        self._begin_step(record)
        require_generator(self.setup.algorithm, record.generator)
        self._run(record, None)

    def _begin_step(self, record: ClientRecord) -> None:
        if record.next_terms:
            self._take_next_terms(record)
        record.replies.clear()
        record.began = record.clock.now if self.timed_gradients else float(self.iteration)
        record.generator = self.setup.algorithm.step(record.client, record.start)

    def _take_next_terms(self, record: ClientRecord) -> None:
        """Of the terms that wait for a client (by ascending round), the last that already hold."""
        due = [terms for terms in record.next_terms if terms.from_round <= record.start.c]
        if due:
            self.adopt(record, due[-1])
            record.renewals += 1
            del record.next_terms[: len(due)]

    def adopt(self, record: ClientRecord, terms: Terms) -> None:
        """A client takes new weights; only ever between two steps."""
        record.terms = terms
        record.client = self.setup.client(record.index, terms.w, terms.scale)

    def adopt_in_step(self, record: ClientRecord, terms: Terms) -> None:
        """A client takes new weights where it is parked: its step is run again, without its effects."""
        self.adopt(record, terms)
        record.renewals += 1
        record.generator = self.setup.algorithm.step(record.client, record.start)
        record.parked = next(record.generator)
        for reply in record.replies:
            record.parked = record.generator.send(reply)

    def _run(self, record: ClientRecord, reply: object) -> None:
        """Give a client its reply, and let it run until it is parked again or has finished."""
        serve, replies = self.serve, record.replies
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
        time, number, i = heappop(self.events.heap)
        if self.events.expected[i] != number:
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
            elif type(record.parked) is Exchange and record.parked.packet:
                reply = self.arrived_packets(i, record.parked, cast(Inbox, reply))
            clock.wait(waited)
            clock.communicate(busy)
        elif type(record.parked) is Overlapped:
            self.begin_overlapped(record, record.parked)
            return
        else:
            reply = self.gradients.take(i)
            clock.compute_until(time)
        record.parked = None
        record.replies.append(reply)
        self._run(record, reply)

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
        if (
            record.discarding
            or record.move_left_out
            or not (state.finite or (not state.memory and math.isfinite(x.dot(x))))
        ):
            state = self._settle(record, state)
        record.steps += 1
        self.iteration += 1
        if self.step_ends is not None:
            self.step_ends(record)
        if x is not record.start.x:  # a step without a move leaves its cell as others have made it meanwhile
            record.model = state.x
        record.start = state
        if record.steps < record.limit:
            return True
        self._finish(record)
        return False

    def _settle(self, record: ClientRecord, end: State) -> State:
        """The state to go on from; a step whose numbers are not finite is counted and reported once."""
        state, record.discarding = kept(record.start, end, record.move_left_out)
        record.move_left_out = False
        if record.discarding:
            self.count_discarded(record)
        return state

    def _finish(self, record: ClientRecord) -> None:
        """The client's last model stays with the neighbours, and nobody waits for it."""
        record.finished = True
        self.events.never_again(record.index)
        self.active -= 1
        if self.sends_models:
            x, _ = self.senders.send(record.index, record.model)
            last = Version(record.clock.now, record.start.c, x, self.time_of(record))
            self.mailboxes.publish(record.index, last, self.now, record.client.neighbours)
        self.nobody_waits_for(record)

    def nobody_waits_for(self, record: ClientRecord) -> None:
        # While weights change, also clients that this one does not count as neighbours may wait for it.
        waiters = range(self.n) if self.changing else record.client.neighbours
        self.meetings.leave(record.index, waiters, self.now)
        self.reduce()

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
            "paces": self.mailboxes.paces(),
            "exchanges": self.meetings.exchanges.state(pool),
            "reductions": self.meetings.reductions.state(),
            "cells": self.cells.state(pool),
            "fragments": self.fragments.state(pool),
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
        if "paces" in saved:  # as of this version
            self.mailboxes.restore_paces(saved["paces"])
        self.meetings.exchanges.restore(saved["exchanges"])
        self.cells.restore(saved["cells"])
        if "fragments" in saved:  # as of this version
            self.fragments.restore(saved["fragments"], self.records[0].model)
        self.log.restore(saved["log"])
        for record, part in zip(self.records, saved["records"].items(self.n), strict=True):
            record.restore(part, self.n)
            record.start = self.setup.placed(record.start)
            record.model = placed(self.setup.workload, record.model)
            if not self.changing and record.terms != Terms(self.setup.weights[record.index]):
                part["terms"].fail("has other weights than the run")
            self.adopt(record, record.terms)
            rerun_step(record, self.setup.algorithm, part)
            if record.finished:
                self.events.never_again(record.index)
        parked = [record.parked for record in self.records]
        self.meetings.reductions.restore(saved["reductions"], parked)
