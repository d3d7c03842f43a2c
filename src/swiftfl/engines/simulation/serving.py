"""The service of verbs in a simulated world: what each of them does, and what it costs its client.

A verb that needs a gradient or other clients is answered with PARKED: its client goes on with the reply later
(`StepRunner`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from swiftfl.engines.setup import Services, refuse_rounds
from swiftfl.engines.simulation.batched_mix import worthwhile
from swiftfl.engines.simulation.mailboxes import Version
from swiftfl.engines.simulation.record import Answer, ClientRecord
from swiftfl.engines.simulation.refusals import wrong_message
from swiftfl.engines.simulation.world import World
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

PARKED = object()


class VerbServing:
    """Who serves which verb of the clients of a world."""

    def __init__(self, world: World) -> None:
        setup, costs, timed = world.setup, world.costs, world.timed_gradients
        self._world, self._setup, self._costs, self._n = world, setup, costs, world.n
        self._timed = timed
        # The components stay the same in all of a run: held here, each is one look away.
        self._records, self._events, self._gradients = world.records, world.events, world.gradients
        self._senders, self._mailboxes, self._mixes = world.senders, world.mailboxes, world.mixes
        self._meetings, self._cells, self._fragments = world.meetings, world.cells, world.fragments
        self._model_shape, self._message_shape = world.x0.shape, world.first_message.shape
        self._own_buffers = bool(setup.own_buffers)
        # Where nobody sees at once what another publishes at the same time, mixes may wait for each other.
        self._mixes_together = timed and not world.changing and costs.latency > 0 and not costs.links
        self.serve: dict[type, Callable[[ClientRecord, Any], object]] = {
            Publish: self._publish,
            Gradient: self._timed_gradient if timed else self._gradient,
            Overlapped: self._timed_overlapped if timed else self._gradient,
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
        if not setup.algorithm.in_rounds:
            self.serve |= dict.fromkeys((Exchange, AllReduce), refuse_rounds(setup.algorithm))

    # --- wait-free verbs -----------------------------------------------------------------------

    def _publish(self, record: ClientRecord, verb: Publish) -> None:
        if getattr(verb.x, "shape", None) != self._message_shape:
            raise wrong_message(self._setup.algorithm, record.index, verb, self._message_shape)
        clock, costs = record.clock, self._costs
        if costs.send:
            clock.communicate(costs.send * len(verb.to))
        x, size = self._senders.send(record.index, verb.x)
        record.traffic.publish(verb, costs.message(size))
        now = clock.now
        version = Version(now, verb.version, x, now if self._timed else float(self._world.iteration))
        self._mailboxes.publish(record.index, version, self._world.now, verb.to)

    def _gradient(self, record: ClientRecord, verb: Gradient | Overlapped) -> object:
        self._gradients.add(record.index)
        return PARKED

    def _timed_gradient(self, record: ClientRecord, verb: Gradient) -> object:
        i, now = record.index, record.clock.now
        self._gradients.add(i)
        self._events.schedule(i, now + self._costs.gradient(i, verb.batch.counter, now))
        return PARKED

    def _fetch(self, record: ClientRecord, verb: Fetch) -> Fetched:
        now = record.clock.now
        # Where nothing takes time, the client that fetches is in the middle of an iteration.
        until = now if self._timed else self._world.iteration + 1.0
        inbox = self._mailboxes.fetch(record.index, verb.neighbours, now, until)
        ages = inbox.ages
        if self._world.active < self._n:
            records = self._records
            ages = {k: age for k, age in ages.items() if not records[k].finished}
        if ages:
            total, count = sum(ages.values()), len(ages)
            record.age = total / count
            record.age_sum += total
            record.age_count += count
        return inbox

    def _mix(self, record: ClientRecord, verb: Mix) -> object:
        if self._costs.mix:
            record.clock.communicate(self._costs.mix * len(verb.inbox))
        record.traffic.mix(verb)
        if verb.rule is not None:
            return self._setup.mixed(verb, verb.inbox)
        if (
            self._mixes_together
            and worthwhile(verb, self._n)
            and (self._mixes.waiting or self._events.another_at(self._world.now))
        ):
            self._mixes.waiting.append(record.index)
            return PARKED
        half = mix(verb.w, verb.x, verb.inbox)
        return self._setup.keep_buffers(half, verb.x) if self._own_buffers else half

    def _scatter(self, record: ClientRecord, verb: Scatter) -> None:
        if getattr(verb.x, "shape", None) != self._model_shape:
            raise wrong_message(self._setup.algorithm, record.index, verb, self._model_shape)
        record.clock.communicate(self._costs.send * len(verb.to) / verb.of)
        record.traffic.scatter(verb, self._fragments.size(verb))
        self._fragments.scatter(record.index, verb, record.clock.now, self._world.now)

    def _gather(self, record: ClientRecord, verb: Gather) -> tuple[Vector, Vector]:
        total, count = self._fragments.gather(record.index, record.model, record.clock.now)
        record.clock.communicate(self._costs.mix * float(count.mean()))
        record.traffic.gather(bool(count.any()))
        if own := self._setup.own_buffers:
            total[-own:] = count[-own:] = 0
        return total, count

    # --- waiting verbs -------------------------------------------------------------------------

    def _exchange(self, record: ClientRecord, verb: Exchange) -> object:
        if getattr(verb.x, "shape", None) != self._message_shape:
            raise wrong_message(self._setup.algorithm, record.index, verb, self._message_shape)
        if partners := len(verb.neighbours):  # whose models are of the same round: one step old
            record.age = 1.0
            record.age_sum += partners
            record.age_count += partners
        self._meetings.exchange(record, verb, self._world.now)
        return PARKED

    def arrived_packets(self, i: int, verb: Exchange, inbox: Inbox) -> Inbox:
        """What client i has of the models in an inbox: its own numbers where packets were lost."""
        if not (self._costs.loss and verb.packet):
            return inbox
        count, arrived = -(-verb.x.size // verb.packet), {}
        for k, x in inbox.items():
            lost = self._costs.lost_packets(k, i, verb.round, count)
            arrived[k] = np.where(np.repeat(lost, verb.packet)[: x.size], verb.x, x)
        return arrived

    def _all_reduce(self, record: ClientRecord, verb: AllReduce) -> object:
        self._meetings.give(record, verb)
        self._world.reduce()
        return PARKED

    def _load(self, record: ClientRecord, verb: Load) -> Vector:
        return self._cells.load(record, verb.owner, self._world.iteration)

    def _average_with(self, record: ClientRecord, verb: AverageWith) -> Vector:
        clock = record.clock
        began, seconds = self._cells.average(record, verb.neighbour)
        clock.wait(began - clock.now)
        clock.communicate(seconds)
        return record.model

    def _timed_overlapped(self, record: ClientRecord, verb: Overlapped) -> object:
        """A client that is ahead of the world begins at its own time: others may ask for the cells before."""
        self._gradients.add(record.index)
        if record.clock.now > self._world.now:
            self._events.schedule(record.index, record.clock.now)
        else:
            self.begin_overlapped(record, verb)
        return PARKED

    def begin_overlapped(self, record: ClientRecord, verb: Overlapped) -> None:
        """It goes on when both are done; what the gradient does not hide is waiting and communication."""
        i, now = record.index, record.clock.now
        computed = now + self._costs.gradient(i, verb.gradient.batch.counter, now)
        began, seconds = self._cells.average(record, verb.averaging.neighbour)
        waited = max(0.0, began - computed)
        busy = max(0.0, min(seconds, began + seconds - computed))
        record.answer = Answer(record.model, waited, busy)
        self._events.schedule(i, computed + waited + busy)

    def _add(self, record: ClientRecord, verb: Add) -> Vector:
        return self._cells.add(record, verb, self._world.iteration)
