"""The clients' steps in a simulated world: their generators run, one verb after the other.

One question is left to the engine: who goes on next. A client runs until it needs a gradient or other
clients, and is then *parked*; an engine lets it go on with `next_event`, `wake` or `act`.
"""

from __future__ import annotations

import math
from typing import cast

from swiftfl.client import State
from swiftfl.engines.discard import kept
from swiftfl.engines.setup import require_generator
from swiftfl.engines.simulation.mailboxes import Version
from swiftfl.engines.simulation.record import ClientRecord
from swiftfl.engines.simulation.refusals import refuse_writing, wrong_end
from swiftfl.engines.simulation.serving import PARKED, VerbServing
from swiftfl.engines.simulation.world import World
from swiftfl.engines.terms import Terms
from swiftfl.vector import Vector
from swiftfl.verbs import AllReduce, Exchange, Inbox, Overlapped


class StepRunner:
    """Begins the clients' steps, has their verbs served, and keeps what they end with."""

    def __init__(self, world: World) -> None:
        self._world, self._algorithm = world, world.setup.algorithm
        self._serving = VerbServing(world)
        self._shape = world.x0.shape

    def start(self) -> None:
        """Let every client that is there, and has weights, run to its first gradient."""
        for record in self._world.records:
            if record.present and not record.selecting:
                self.start_client(record)

    def start_client(self, record: ClientRecord) -> None:
        """Let a client begin a step, and run until it is parked."""
        self._begin_step(record)
        require_generator(self._algorithm, record.generator)
        self._run(record, None)

    def _begin_step(self, record: ClientRecord) -> None:
        if record.next_terms:
            self._take_next_terms(record)
        record.replies.clear()
        world = self._world
        record.began = record.clock.now if world.timed_gradients else float(world.iteration)
        record.generator = self._algorithm.step(record.client, record.start)

    def _take_next_terms(self, record: ClientRecord) -> None:
        """Of the terms that wait for a client (by ascending round), the last that already hold."""
        due = [terms for terms in record.next_terms if terms.from_round <= record.start.c]
        if due:
            self._world.adopt(record, due[-1])
            record.renewals += 1
            del record.next_terms[: len(due)]

    def adopt_in_step(self, record: ClientRecord, terms: Terms) -> None:
        """A client takes new weights where it is parked: its step is run again, without its effects."""
        self._world.adopt(record, terms)
        record.renewals += 1
        record.generator = self._algorithm.step(record.client, record.start)
        record.parked = next(record.generator)
        for reply in record.replies:
            record.parked = record.generator.send(reply)

    def _run(self, record: ClientRecord, reply: object) -> None:
        """Give a client its reply, and let it run until it is parked again or has finished."""
        serve, replies = self._serving.serve, record.replies
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
            except ValueError as error:
                refuse_writing(self._algorithm, error)
                raise
            reply = serve[type(verb)](record, verb)
            if reply is PARKED:
                record.parked = verb
                return
            replies.append(reply)

    def wake(self, i: int, reply: object) -> None:
        """Let a parked client go on with the reply that it was parked for."""
        record = self._world.records[i]
        record.parked = None
        record.replies.append(reply)
        self._run(record, reply)

    def next_event(self) -> None:
        """Let the client whose gradient or reply is ready next go on."""
        world = self._world
        events = world.events
        event = events.pop()
        if event is None:
            return
        time, _, i = event
        world.now = time
        record = world.records[i]
        clock = record.clock
        if record.sleep_due:
            clock.sleep(record.sleep_due)
            record.sleep_due = 0.0
        if record.answer is not None:
            reply, waited, busy = record.answer
            record.answer = None
            if type(record.parked) is Overlapped:
                reply = (world.gradients.take(i), reply)
                clock.compute_until(time - waited - busy)
            elif type(record.parked) is AllReduce:
                reply = world.setup.keep_buffers(cast(Vector, reply), record.parked.value)
            elif type(record.parked) is Exchange and record.parked.packet:
                reply = self._serving.arrived_packets(i, record.parked, cast(Inbox, reply))
            clock.wait(waited)
            clock.communicate(busy)
        elif type(record.parked) is Overlapped:
            self._serving.begin_overlapped(record, record.parked)
            return
        else:
            reply = world.gradients.take(i)
            clock.compute_until(time)
        record.parked = None
        record.replies.append(reply)
        self._run(record, reply)

    def act(self, i: int) -> None:
        """Let a client go on that is parked at a gradient which takes no time."""
        world, record = self._world, self._world.records[i]
        reply: object = world.gradients.take(i)
        if type(record.parked) is Overlapped:
            world.cells.average(record, record.parked.averaging.neighbour)
            reply = (reply, record.model)
        self.wake(i, reply)

    def _end_step(self, record: ClientRecord, state: object) -> bool:
        """Keep the new state; whether the client goes on."""
        if not isinstance(state, State) or getattr(state.x, "shape", None) != self._shape:
            raise wrong_end(self._algorithm, record.index, state, self._shape)
        x = state.x
        # A quick look that most steps pass; `kept` looks closely.
        if (
            record.discarding
            or record.move_left_out
            or not (state.finite or (not state.memory and math.isfinite(x.dot(x))))
        ):
            state = self._settle(record, state)
        record.steps += 1
        world = self._world
        world.iteration += 1
        if world.step_ends is not None:
            world.step_ends(record)
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
            self._world.count_discarded(record)
        return state

    def _finish(self, record: ClientRecord) -> None:
        """The client's last model stays with the neighbours, and nobody waits for it."""
        world = self._world
        record.finished = True
        record.generator = None
        record.replies.clear()  # or the last gradient and average of everybody would stay
        world.events.never_again(record.index)
        world.active -= 1
        if world.sends_models:
            x, _ = world.senders.send(record.index, record.model)
            last = Version(record.clock.now, record.start.c, x, world.time_of(record))
            world.mailboxes.publish(record.index, last, world.now, record.client.neighbours)
        world.nobody_waits_for(record)
