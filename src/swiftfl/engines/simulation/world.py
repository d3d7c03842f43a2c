"""A world in one process: all that a simulated run consists of between two events.

It has one record per client, and components for whatever else has a state (`state`, `restore`). `StepRunner`
lets the clients' steps run in it, and `VerbServing` serves their verbs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import numpy as np

from swiftfl.costs import Costs
from swiftfl.engines.discard import discard_message
from swiftfl.engines.engine import WARNING
from swiftfl.engines.saved import Pool, Saved, Tree
from swiftfl.engines.setup import Setup, own_messages
from swiftfl.engines.simulation.batched_mix import BatchedMixes
from swiftfl.engines.simulation.cells import Cells
from swiftfl.engines.simulation.event_log import EventLog
from swiftfl.engines.simulation.event_queue import EventQueue
from swiftfl.engines.simulation.fragments import Fragments
from swiftfl.engines.simulation.gradients import PendingGradients
from swiftfl.engines.simulation.helpers import Helpers
from swiftfl.engines.simulation.mailboxes import Links, Mailboxes
from swiftfl.engines.simulation.meetings import Meetings
from swiftfl.engines.simulation.record import ClientRecord, rerun_step
from swiftfl.engines.simulation.senders import Senders
from swiftfl.engines.simulation.superseded import SupersededModels
from swiftfl.engines.terms import Terms
from swiftfl.vector import Vector
from swiftfl.workload.base import placed

_log = logging.getLogger(__name__)
MANY_BYTES = 32 << 20  # of all models: from here on, superseded ones are given up as early as possible


class World:
    """The clients' records, the components around them, and the counters of the run.

    With `timed_gradients`, a client goes on after the time that its gradient takes; without, when its
    engine wakes it. With `changing`, clients come and go (`Churn`).
    """

    def __init__(
        self, setup: Setup, costs: Costs, timed_gradients: bool = True, changing: bool = False
    ) -> None:
        n = setup.n
        x0 = read_only(setup.workload.initial(setup.seed))
        first = setup.first_state(x0)  # shared: nobody writes into a state
        self.setup, self.costs, self.n, self.x0 = setup, costs, n, x0
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
        self.senders = Senders(n, setup.codec, partial(placed, setup.workload))
        own = own_messages(setup)
        self.first_message = x0 if own is None else own(x0)
        self.sends_models = own is None
        self.size = costs.message(x0.nbytes)  # of a vector that no codec touches
        self.model_size = costs.message(self.senders.most_bytes(self.first_message))
        self.events = EventQueue(n)
        self.helpers = Helpers(setup.workload, setup.workers, x0)
        self.gradients = PendingGradients(
            self.records,
            setup.workload,
            x0.nbytes,
            self.helpers,
            setup.batch_sizes,
            self.events if timed_gradients else None,
        )
        self.mixes = BatchedMixes(self.records, setup.keep_buffers, x0.nbytes)
        self.links = Links()
        self.mailboxes = Mailboxes(n, self.first_message, costs, self.links, self.model_size)
        if timed_gradients and not changing and costs.same_everywhere and n * x0.nbytes >= MANY_BYTES:
            superseded = SupersededModels(self.records, self.mailboxes, self.events)
            self.gradients.before_step = superseded.step
        self.meetings = Meetings(
            self.records,
            costs,
            self.events,
            self.links,
            self.senders,
            self.size,
            self.model_size,
            everyone=setup.barrier == "global",
            models=self.sends_models,
        )
        self.fragments = Fragments(n, costs, self.links)
        self.cells = Cells(self.records, costs, self.links, self.size, setup.keep_buffers)
        self.log = EventLog()
        self.step_ends: Callable[[ClientRecord], None] | None = None  # who is told of each step (`facts`)

    def time_of(self, record: ClientRecord) -> float:
        """By which ages are counted: the client's clock, or iterations where nothing takes time."""
        return record.clock.now if self.timed_gradients else float(self.iteration)

    def adopt(self, record: ClientRecord, terms: Terms) -> None:
        """A client takes new weights; only ever between two steps."""
        record.terms = terms
        record.client = self.setup.client(record.index, terms.w, terms.scale)

    # --- who is waited for ---------------------------------------------------------------------

    def nobody_waits_for(self, record: ClientRecord) -> None:
        # While weights change, also clients that this one does not count as neighbours may wait for it.
        waiters = range(self.n) if self.changing else record.client.neighbours
        self.meetings.leave(record.index, waiters, self.now)
        self.reduce()

    def reduce(self) -> None:
        """Serve the reductions to which everybody who is thought to be there has given its value."""
        earliest = self.now if self.changing else 0.0
        for i in self.meetings.reduce(self.active + len(self.unnoticed), earliest):
            self.count_discarded(self.records[i])

    # --- what is told of the run ---------------------------------------------------------------

    def count_discarded(self, record: ClientRecord) -> None:
        """Count this step, once, whatever of it was not finite."""
        if record.discarded_at == record.start.c:
            return
        record.discarded_at = record.start.c
        record.discarded += 1
        if record.discarded == 1:
            message = discard_message(record.index, record.start.c)
            _log.warning("%s", message)
            self.note(WARNING, client=record.index, text=message)

    def note(self, event: str, **more: object) -> None:
        self.log.note(event, self.iteration, self.now, **more)

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
        self.mailboxes.restore(saved["mailboxes"], given_up=self.gradients.before_step is not None)
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
            if (
                self.changing
            ):  # else it has them already, and to be given up, models must go to the same receivers
                self.adopt(record, record.terms)
            rerun_step(record, self.setup.algorithm, part)
            if record.finished:
                self.events.never_again(record.index)
        parked = [record.parked for record in self.records]
        self.meetings.reductions.restore(saved["reductions"], parked)


def read_only(x: Vector) -> Vector:
    """The same vector, for many to share: whoever writes into it gets an error, if it is in host memory."""
    if isinstance(x, np.ndarray):
        x = x.view()  # the workload may keep its own, and write into it
        x.flags.writeable = False
    return x
