"""The service of verbs in a simulated world: what each of them does, and what it costs its client.

`VerbServing` holds the state of a run between two events: one record per client, and components that each
own theirs (`state`, `restore`). `World` lets the clients' generators run, and has their verbs served here.
One that needs a gradient or other clients is answered with PARKED: its client goes on with the reply later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np

from swiftfl.costs import Costs
from swiftfl.engines.discard import discard_message
from swiftfl.engines.engine import WARNING
from swiftfl.engines.setup import Services, Setup, own_messages, refuse_rounds
from swiftfl.engines.simulation.batched_mix import BatchedMixes, worthwhile
from swiftfl.engines.simulation.cells import Cells
from swiftfl.engines.simulation.event_log import EventLog
from swiftfl.engines.simulation.event_queue import EventQueue
from swiftfl.engines.simulation.fragments import Fragments
from swiftfl.engines.simulation.gradients import PendingGradients
from swiftfl.engines.simulation.helpers import Helpers
from swiftfl.engines.simulation.mailboxes import Links, Mailboxes, Version
from swiftfl.engines.simulation.meetings import Meetings
from swiftfl.engines.simulation.record import Answer, ClientRecord
from swiftfl.engines.simulation.senders import Senders
from swiftfl.engines.simulation.superseded import SupersededModels
from swiftfl.engines.terms import Terms
from swiftfl.vector import Vector, mix
from swiftfl.verbs import (
    Add,
    AllReduce,
    AverageWith,
    Exchange,
    Fetch,
    Fetched,
    Gather,
    Gradient,
    Inbox,
    Load,
    Mix,
    Overlapped,
    Publish,
    Scatter,
)

_log = logging.getLogger(__name__)
PARKED = object()
MANY_BYTES = 32 << 20  # of all models: from here on, superseded ones are given up as early as possible


class VerbServing:
    """The clients' records, the components around them, and who serves which verb.

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
        own = own_messages(setup)
        self.first_message = x0 if own is None else own(x0)
        self.sends_models = own is None
        self.size = costs.message(x0.nbytes)  # of a vector that no codec touches
        self.model_size = costs.message(self.senders.most_bytes(self.first_message))
        self.events = EventQueue(n)
        self.helpers = Helpers(setup.workload, setup.workers, x0)
        self.gradients = PendingGradients(self.records, setup.workload, x0.nbytes, self.helpers)
        self.mixes = BatchedMixes(self.records, setup.keep_buffers, x0.nbytes)
        self.links = Links()
        self.mailboxes = Mailboxes(n, self.first_message, costs, self.links, self.model_size)
        if timed_gradients and not changing and costs.same_everywhere and n * x0.nbytes >= MANY_BYTES:
            superseded = SupersededModels(self.records, self.mailboxes, self.events)
            self.gradients.before_piece = superseded.after
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
        # Where nobody sees at once what another publishes at the same time, mixes may wait for each other.
        self._own_buffers = bool(setup.own_buffers)
        self._mixes_together = timed_gradients and not changing and costs.latency > 0 and not costs.links
        self.serve: dict[type, Callable[[ClientRecord, Any], object]] = {
            Publish: self._publish,
            Gradient: self._timed_gradient if timed_gradients else self._gradient,
            Overlapped: self._timed_overlapped if timed_gradients else self._gradient,
            Fetch: self._fetch,
            Mix: self._mix,
            Scatter: self._scatter,
            Gather: self._gather,
            Exchange: self._exchange,
            AllReduce: self._all_reduce,
            Load: self._load,
            AverageWith: self._average_with,
            Add: self._add,
        }
        self.serve = Services(self.serve)
        if not self.in_rounds:
            self.serve |= dict.fromkeys((Exchange, AllReduce), refuse_rounds(setup.algorithm))

    # --- wait-free verbs -----------------------------------------------------------------------

    def _publish(self, record: ClientRecord, verb: Publish) -> None:
        clock, costs = record.clock, self.costs
        if costs.send:
            clock.communicate(costs.send * len(verb.to))
        x, size = self.senders.send(record.index, verb.x)
        record.traffic.publish(verb, costs.message(size))
        now = clock.now
        version = Version(now, verb.version, x, now if self.timed_gradients else float(self.iteration))
        self.mailboxes.publish(record.index, version, self.now, verb.to)

    def time_of(self, record: ClientRecord) -> float:
        """By which ages are counted: the client's clock, or iterations where nothing takes time."""
        return record.clock.now if self.timed_gradients else float(self.iteration)

    def _gradient(self, record: ClientRecord, verb: Gradient | Overlapped) -> object:
        self.gradients.add(record.index)
        return PARKED

    def _timed_gradient(self, record: ClientRecord, verb: Gradient) -> object:
        i, now = record.index, record.clock.now
        self.gradients.add(i)
        self.events.schedule(i, now + self.costs.gradient(i, verb.batch.counter, now))
        return PARKED

    def _fetch(self, record: ClientRecord, verb: Fetch) -> Fetched:
        now = record.clock.now
        # Where nothing takes time, the client that fetches is in the middle of an iteration.
        until = now if self.timed_gradients else self.iteration + 1.0
        inbox = self.mailboxes.fetch(record.index, verb.neighbours, now, until)
        ages = inbox.ages
        if self.active < self.n:
            records = self.records
            ages = {k: age for k, age in ages.items() if not records[k].finished}
        if ages:
            total, count = sum(ages.values()), len(ages)
            record.age = total / count
            record.age_sum += total
            record.age_count += count
        return inbox

    def _mix(self, record: ClientRecord, verb: Mix) -> object:
        if self.costs.mix:
            record.clock.communicate(self.costs.mix * len(verb.inbox))
        record.traffic.mix(verb)
        if verb.rule is not None:
            return self.setup.mixed(verb, verb.inbox)
        if (
            self._mixes_together
            and worthwhile(verb, self.n)
            and (self.mixes.waiting or self.events.another_at(self.now))
        ):
            self.mixes.waiting.append(record.index)
            return PARKED
        half = mix(verb.w, verb.x, verb.inbox)
        return self.setup.keep_buffers(half, verb.x) if self._own_buffers else half

    def _scatter(self, record: ClientRecord, verb: Scatter) -> None:
        record.clock.communicate(self.costs.send * len(verb.to) / verb.of)
        record.traffic.scatter(verb, self.fragments.size(verb))
        self.fragments.scatter(record.index, verb, record.clock.now, self.now)

    def _gather(self, record: ClientRecord, verb: Gather) -> tuple[Vector, Vector]:
        total, count = self.fragments.gather(record.index, record.model, record.clock.now)
        record.clock.communicate(self.costs.mix * float(count.mean()))
        record.traffic.gather(bool(count.any()))
        if own := self.setup.own_buffers:
            total[-own:] = count[-own:] = 0
        return total, count

    # --- waiting verbs -------------------------------------------------------------------------

    def _exchange(self, record: ClientRecord, verb: Exchange) -> object:
        if partners := len(verb.neighbours):  # whose models are of the same round: one step old
            record.age = 1.0
            record.age_sum += partners
            record.age_count += partners
        self.meetings.exchange(record, verb, self.now)
        return PARKED

    def arrived_packets(self, i: int, verb: Exchange, inbox: Inbox) -> Inbox:
        """What client i has of the models in an inbox: its own numbers where packets were lost."""
        if not (self.costs.loss and verb.packet):
            return inbox
        count, arrived = -(-verb.x.size // verb.packet), {}
        for k, x in inbox.items():
            lost = self.costs.lost_packets(k, i, verb.round, count)
            arrived[k] = np.where(np.repeat(lost, verb.packet)[: x.size], verb.x, x)
        return arrived

    def _all_reduce(self, record: ClientRecord, verb: AllReduce) -> object:
        self.meetings.give(record, verb)
        self.reduce()
        return PARKED

    def reduce(self) -> None:
        """Serve the reductions to which everybody who is thought to be there has given its value."""
        earliest = self.now if self.changing else 0.0
        for i in self.meetings.reduce(self.active + len(self.unnoticed), earliest):
            self.count_discarded(self.records[i])

    def _load(self, record: ClientRecord, verb: Load) -> Vector:
        return self.cells.load(record, verb.owner, self.iteration)

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
            self.begin_overlapped(record, verb)
        return PARKED

    def begin_overlapped(self, record: ClientRecord, verb: Overlapped) -> None:
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

    # --- what is told of them ------------------------------------------------------------------

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
