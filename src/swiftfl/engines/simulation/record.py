"""Everything that a simulated run knows of one client."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from swiftfl.algorithm import Algorithm
from swiftfl.client import Client, State
from swiftfl.engines.saved import Pool, Saved, Tree, pack_number
from swiftfl.engines.simulation.clocks import Clock
from swiftfl.engines.simulation.replies import answers, pack_reply, unpack_reply
from swiftfl.engines.terms import Terms, pack_terms, read_terms
from swiftfl.engines.traffic import Traffic
from swiftfl.errors import UserError
from swiftfl.vector import Memory, Vector
from swiftfl.verbs import Verb


class Answer(NamedTuple):
    """A reply that a client will have, and how its time since it asked was spent."""

    reply: object
    waited: float
    busy: float


@dataclass(slots=True, eq=False)
class ClientRecord:
    """A client between two events, in the middle of a step.

    `start` is its state at the start of the step, `replies` what the step was sent since, `parked` the
    verb that it waits at (None for one that has finished or is not there).
    """

    index: int
    client: Client
    terms: Terms
    start: State
    model: Vector
    limit: float
    generator: Generator[Any, Any, State] | None = None
    replies: list[object] = field(default_factory=list)
    parked: Any = None
    answer: Answer | None = None
    clock: Clock = field(default_factory=Clock)
    traffic: Traffic = field(default_factory=Traffic)
    steps: int = 0
    finished: bool = False
    # steps whose numbers were not finite
    discarded: int = 0
    discarded_at: int = 0  # the step that was counted last
    discarding: bool = False  # the last step was one
    move_left_out: bool = False  # this step will be one
    # a network that changes
    present: bool = True
    selecting: bool = False  # has no weights yet, and has not started
    lost_until: float = 0.0  # when the others notice that the client is gone
    sleep_due: float = 0.0  # seconds of sleep that are not in the clock yet
    next_terms: list[Terms] = field(default_factory=list)  # taken between two steps; by ascending round
    was_lost: bool = False
    # what is told of the step (facts), and of the ages of models at all fetches so far
    began: float = 0.0
    loss: float = math.nan
    age: float = math.nan
    age_sum: float = 0.0
    age_count: int = 0
    renewals: int = 0

    def state(self, pool: Pool) -> Tree:
        x, c, memory = self.start.x, self.start.c, self.start.memory
        answer = self.answer
        return {
            "start": [pool.put(x), c, {name: pool.put(array) for name, array in memory.items()}],
            "model": pool.put(self.model),
            "replies": [pack_reply(reply, pool) for reply in self.replies],
            "answer": answer and [pack_reply(answer.reply, pool), answer.waited, answer.busy],
            "clock": self.clock.state(),
            "traffic": [self.traffic.rounds, self.traffic.messages, self.traffic.bytes],
            "steps": self.steps,
            "finished": self.finished,
            "discarded": self.discarded,
            "discarded_at": self.discarded_at,
            "discarding": self.discarding,
            "move_left_out": self.move_left_out,
            "present": self.present,
            "selecting": self.selecting,
            "lost_until": self.lost_until,
            "sleep_due": self.sleep_due,
            "terms": pack_terms(self.terms),
            "next_terms": [pack_terms(terms) for terms in self.next_terms],
            "was_lost": self.was_lost,
            "told": [self.began, pack_number(self.loss), pack_number(self.age), self.age_sum, self.age_count],
            "renewals": self.renewals,
        }

    def restore(self, saved: Saved, n: int) -> None:
        """All but the client, whose weights follow from the terms, and the generator (`World.restore`)."""
        x, c, memory = saved["start"].items(3)
        self.start = State(x.finite(), c.integer(1), _memory(memory, self.start.memory))
        self.model = saved["model"].finite()
        self.replies = [unpack_reply(reply, n) for reply in saved["replies"].items()]
        self.answer = None
        if not saved["answer"].missing:
            reply, waited, busy = saved["answer"].items(3)
            self.answer = Answer(unpack_reply(reply, n), waited.number(), busy.number())
        self.clock.restore(saved["clock"])
        self.traffic = Traffic(*(counted.integer() for counted in saved["traffic"].items(3)))
        self.steps = saved["steps"].integer()
        self.finished = saved["finished"].flag()
        self.discarded = saved["discarded"].integer()
        if "discarded_at" in saved:  # as of this version
            self.discarded_at = saved["discarded_at"].integer()
        self.discarding = saved["discarding"].flag()
        self.move_left_out = saved["move_left_out"].flag()
        self.present = saved["present"].flag()
        self.selecting = saved["selecting"].flag()
        self.lost_until = saved["lost_until"].number(0.0)
        self.sleep_due = saved["sleep_due"].number(0.0)
        self.terms = read_terms(saved["terms"], n)
        self.next_terms = [read_terms(terms, n) for terms in saved["next_terms"].items()]
        if "told" in saved:  # as of this version
            self.was_lost = saved["was_lost"].flag()
            self.renewals = saved["renewals"].integer()
            began, loss, age, age_sum, age_count = saved["told"].items(5)
            self.began, self.loss, self.age = began.number(0.0), loss.any_number(), age.any_number()
            self.age_sum, self.age_count = age_sum.number(0.0), age_count.integer()


def _memory(saved: Saved, first: Memory) -> Memory:
    """Arrays of the names and shapes with which the update rule began."""
    arrays = saved.entries()
    if set(arrays) != set(first):
        saved.fail(f"has arrays {sorted(arrays)}, the update rule has {sorted(first)}")
    return {name: arrays[name].finite(like) for name, like in first.items()}


def rerun_step(record: ClientRecord, algorithm: Algorithm[Verb], saved: Saved) -> None:
    """Bring a client's step back to where it was parked: it follows from its start and its replies."""
    record.generator = record.parked = None
    if record.finished or record.selecting or not record.present:
        return
    record.generator = algorithm.step(record.client, record.start)
    try:
        verb = next(record.generator)
        for reply in record.replies:
            if not answers(reply, verb):
                saved["replies"].fail(f"do not answer the verbs of algorithm {algorithm.name}")
            verb = record.generator.send(reply)
    except UserError:
        raise
    except Exception as error:
        reason = "the step is over" if isinstance(error, StopIteration) else str(error)
        saved.fail(f"does not belong to algorithm {algorithm.name}: {reason}")
    record.parked = verb
