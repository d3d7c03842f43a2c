"""A world in one process: it runs the clients' generators and serves their verbs.

`World` knows the verbs and the clients' own clocks, and leaves one question to its engine: who goes
on next. A client runs until it needs a gradient or other clients, and is then *parked*; engines wake
it with `resume`. Gradients of parked clients are computed together, all pending ones in one call
(`Workload.gradients`), because a client's gradient depends on nothing that happens before it resumes.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

from swiftfl.client import State
from swiftfl.engines.setup import Setup
from swiftfl.engines.simulation.barriers import ExchangeBarrier, ReduceBarrier
from swiftfl.engines.simulation.batched_mix import mix_many, worthwhile
from swiftfl.engines.simulation.clocks import Clocks
from swiftfl.engines.simulation.mailboxes import Letter, Mailboxes
from swiftfl.engines.terms import Terms
from swiftfl.sample import Slope
from swiftfl.vector import Vector, advance, mix
from swiftfl.verbs import Add, AllReduce, AverageWith, Exchange, Fetch, Gradient, Inbox, Load, Mix, Publish

PARKED = object()
_WAITING_GRADIENTS = 256 << 20  # bytes of gradients that are computed before they are needed


class World:
    """The state of a run between two events; `step` of an engine moves it on by one."""

    def __init__(self, setup: Setup) -> None:
        n = setup.n
        x0 = setup.workload.initial(setup.seed)
        self.setup = setup
        self.costs = setup.costs
        self.n = n
        self.iteration = 0
        self.now = 0.0
        self.clients = [setup.client(i) for i in range(n)]
        self.limits = [setup.steps_of(i) for i in range(n)]
        self.models: list[Vector] = [x0] * n
        first = setup.first_state(x0)  # shared: nobody writes into a state
        self.states = [first] * n
        self.finished = [False] * n
        self.active = n
        self.times = Clocks(n)
        self.generators: list[Generator[Any, Any, State]] = []
        self.replies: list[list[object]] = [[] for _ in range(n)]
        self.parked: list[Any] = [None] * n
        # gradients
        self.pending: list[int] = []
        self.slopes: list[Slope | None] = [None] * n
        self.loss_sum = 0.0
        self.loss_count = 0
        # mixes of clients that act at the same time, and their results that wait to be delivered
        self.mixes_together = False
        self.mixing: list[int] = []
        self.mixed: deque[tuple[int, Vector]] = deque()
        # messages
        self.model_bytes = x0.nbytes
        self.size = self.costs.message(x0.nbytes)
        self.mailboxes = Mailboxes(n, x0, setup.costs)
        self.cut: set[tuple[int, int]] = set()
        self.meetings = ExchangeBarrier(n, everyone=setup.barrier == "global")
        self.gathering = ReduceBarrier()
        # model cells that others may average into
        self.busy = [0.0] * n
        self.loaded_at = [0] * n
        self.largest_delay = 0
        # what is to happen: (time, order, client); of a client's entries only the expected one counts
        self.heap: list[tuple[float, int, int]] = []
        self.order = 0
        self.expected = [0] * n
        self.outcome: dict[int, tuple[object, float, float]] = {}
        # who is there, and the weights that clients take at the start of a later step
        self.network = None if setup.network is None else setup.network()
        self.present = [True] * n
        self.lost_until = [0.0] * n
        self.in_rounds = setup.algorithm.in_rounds
        self.terms = [Terms(w) for w in setup.weights]
        self.renewed: dict[int, list[Terms]] = {}
        self._serve: dict[type, Callable[[int, Any], object]] = {
            Publish: self._publish,
            Gradient: self._gradient,
            Fetch: self._fetch,
            Mix: self._mix,
            Exchange: self._exchange,
            AllReduce: self._all_reduce,
            Load: self._load,
            AverageWith: self._average_with,
            Add: self._add,
        }

    # --- the life of a client ------------------------------------------------------------------

    def start(self) -> None:
        """Let every client run to its first gradient."""
        self.generators = [self.new_step(i) for i in range(self.n)]
        for i in range(self.n):
            if self.present[i]:
                self.resume(i, None)

    def new_step(self, i: int) -> Generator[Any, Any, State]:
        if i in self.renewed:
            self._take_new_terms(i)
        return self.setup.algorithm.step(self.clients[i], self.states[i])

    def _take_new_terms(self, i: int) -> None:
        """Of the terms that wait for client i (by ascending round), the last that already hold."""
        c = self.states[i].c
        due = [terms for terms in self.renewed[i] if terms.from_round <= c]
        if due:
            self.adopt(i, due[-1])
            self.renewed[i] = self.renewed[i][len(due) :]
        if not self.renewed[i]:
            del self.renewed[i]

    def adopt(self, i: int, terms: Terms) -> None:
        """Client i takes new weights; only ever between two steps."""
        self.terms[i] = terms
        self.clients[i] = self.setup.client(i, terms.w, terms.scale)

    def resume(self, i: int, reply: object) -> None:
        """Give client i its reply, and let it run until it is parked again or has finished."""
        generator, replies, serve = self.generators[i], self.replies[i], self._serve
        while True:
            try:
                verb = generator.send(reply)
            except StopIteration as stop:
                if not self._end_step(i, stop.value):
                    return
                generator = self.generators[i] = self.new_step(i)
                replies.clear()
                reply = None
                continue
            reply = serve[type(verb)](i, verb)
            if reply is PARKED:
                self.parked[i] = verb
                return
            replies.append(reply)

    def wake(self, i: int, reply: object) -> None:
        """Resume a parked client with the reply that it was parked for."""
        self.parked[i] = None
        self.replies[i].append(reply)
        self.resume(i, reply)

    def _end_step(self, i: int, state: State) -> bool:
        """Keep the new state; whether client i goes on."""
        self.states[i] = state
        self.models[i] = state.x
        self.iteration += 1
        self.times.steps[i] += 1
        if self.times.steps[i] < self.limits[i]:
            return True
        self._leave(i)
        return False

    def _leave(self, i: int) -> None:
        """Client i has finished: its last model stays with the neighbours, nobody waits for it."""
        self.finished[i] = True
        self.active -= 1
        last = Letter(self.times.clock[i], self.states[i].c, self.models[i])
        self.mailboxes.publish(i, last, self.now, self.clients[i].neighbours)
        self.nobody_waits_for(i)

    def nobody_waits_for(self, i: int) -> None:
        # While weights change, also clients that this one does not count as neighbours may wait for it.
        waiters = self.clients[i].neighbours if self.network is None else range(self.n)
        for k in self.meetings.leave(i, waiters):
            self._met(k)
        self._gather()

    def members(self) -> list[int]:
        """The clients whose models count: those who are there, and those who have finished."""
        return [i for i in range(self.n) if self.present[i]]

    @property
    def over(self) -> bool:
        limit = self.setup.iterations
        return (limit is not None and self.iteration >= limit) or self.active == 0

    # --- what is told of the run (`engines.engine`) ----------------------------------------------

    def epochs(self) -> list[float]:
        """Per client: its steps over its steps per epoch."""
        return [s / b.steps_per_epoch for s, b in zip(self.times.steps, self.setup.batches, strict=True)]

    def seconds(self) -> dict[str, list[float]]:
        """Per client, its time."""
        times = self.times
        return {
            "compute": times.compute,
            "communication": times.communication,
            "waiting": times.waiting,
        }

    def take_train_loss(self) -> float | None:
        """The mean loss of the batches since the last call."""
        total, count = self.loss_sum, self.loss_count
        self.loss_sum, self.loss_count = 0.0, 0
        return total / count if count else None

    @property
    def models_in_memory(self) -> int:
        """Distinct models held: one per client, and older versions that a mailbox may still need."""
        held: dict[int, Vector] = {id(x): x for x in self.models}
        for letters in self.mailboxes.letters:
            held.update((id(letter.x), letter.x) for letter in letters)
        return len(held)

    def take_log(self) -> list[dict[str, Any]]:
        """What happened since the last call; here nothing does."""
        return []

    def discarding(self) -> list[int]:
        """The members whose last step was left out."""
        return []

    def figures(self) -> dict[str, Any]:
        """Of a network that changes also: who is not there at the end, and how often weights were renewed."""
        figures = {"virtual_seconds": max(self.times.clock), "largest_delay": self.largest_delay}
        if self.network is None:
            return figures
        lost = [i for i in range(self.n) if not self.present[i]]
        return {**figures, "lost": lost, "renewals": self.network.renewals}

    def close(self) -> None:
        """There is nothing to give back."""

    # --- wait-free verbs -----------------------------------------------------------------------

    def _publish(self, i: int, verb: Publish) -> None:
        self.times.communicate(i, self.costs.send * len(verb.to))
        self.mailboxes.publish(i, Letter(self.times.clock[i], verb.version, verb.x), self.now, verb.to)

    def _gradient(self, i: int, verb: Gradient) -> object:
        self.pending.append(i)
        clock = self.times.clock[i]
        self.schedule(i, clock + self.costs.gradient(i, verb.batch.counter, clock))
        return PARKED

    def slope(self, i: int) -> Slope:
        """The gradient that client i is parked for; the other pending ones are computed with it."""
        slope = self.slopes[i]
        if slope is None:
            group = self._group_of(i)
            verbs = [self.parked[k] for k in group]
            slopes = self.setup.workload.gradients([v.x for v in verbs], [v.batch for v in verbs])
            for k, computed in zip(group, slopes, strict=True):
                self.slopes[k] = computed
            slope = self.slopes[i]
            assert slope is not None, f"client {i} is not parked at a gradient"
        self.slopes[i] = None
        self.loss_sum += slope.loss
        self.loss_count += 1
        return slope

    def _group_of(self, i: int) -> list[int]:
        """Whose gradients to compute with client i's: everybody's, or as many as may wait in memory."""
        most = max(1, _WAITING_GRADIENTS // self.model_bytes)
        if len(self.pending) <= most:
            group, self.pending = self.pending, []
            return group
        group = [i, *(k for k in self.pending if k != i)][:most]
        chosen = set(group)
        self.pending = [k for k in self.pending if k not in chosen]
        return group

    def _fetch(self, i: int, verb: Fetch) -> Inbox:
        inbox = self.mailboxes.fetch(i, verb.neighbours, self.times.clock[i])
        return {k: x for k, x in inbox.items() if self.linked(i, k)} if self.cut else inbox

    def linked(self, i: int, k: int) -> bool:
        """Whether a model can pass between two clients that were neighbours."""
        return (min(i, k), max(i, k)) not in self.cut

    def _mix(self, i: int, verb: Mix) -> object:
        self.times.communicate(i, self.costs.mix * len(verb.inbox))
        if self.mixes_together and (self.mixing or self._not_alone()) and worthwhile(verb, self.n):
            self.mixing.append(i)
            return PARKED
        return mix(verb.w, verb.x, verb.inbox)

    def _not_alone(self) -> bool:
        """Whether somebody else acts at this very time, too."""
        return bool(self.heap) and self.heap[0][0] == self.now

    def mix_together(self) -> None:
        """Serve everybody who is parked at a mix; they go on one by one, in their order."""
        halves = mix_many([self.parked[i] for i in self.mixing])
        self.mixed.extend(zip(self.mixing, halves, strict=True))
        self.mixing.clear()

    # --- waiting verbs -------------------------------------------------------------------------

    def _exchange(self, i: int, verb: Exchange) -> object:
        self.times.communicate(i, self.costs.send * len(verb.neighbours))
        for k in self.meetings.arrive(i, verb, self.times.clock[i]):
            self._met(k)
        return PARKED

    def _met(self, i: int) -> None:
        """All models that client i waits for exist: it goes on when the last one has arrived."""
        wait, arrived, inbox = self.meetings.take(i, self.models, self.finished)
        if self.cut:
            inbox = {k: x for k, x in inbox.items() if self.linked(i, k)}
            arrived = {k: time for k, time in arrived.items() if k in inbox}
        latest = max([self.meetings.reached(wait), *arrived.values()])
        ready = max([latest, *(time + self.journey(k, i, wait.round) for k, time in arrived.items())])
        # A partner that was lost is waited for until that is noticed, which is now.
        lost = any(k not in inbox for k in wait.partners)
        ready = max(ready, self.now) if lost else ready
        latest = max(latest, self.now) if lost else latest
        self.finish_waiting(i, inbox, waited=max(0.0, latest - wait.time), until=ready)

    def journey(self, sender: int, receiver: int, number: int) -> float:
        costs = self.costs
        return costs.transit(sender, receiver, self.size) + costs.delay(sender, receiver, number)

    def _all_reduce(self, i: int, verb: AllReduce) -> object:
        self.gathering.arrive(i, verb, self.times.clock[i])
        self._gather()
        return PARKED

    def _gather(self) -> None:
        """Serve the reductions to which everybody who is thought to be there has given its value."""
        awaited = self.active + (len(self.network.unnoticed) if self.network else 0)
        for round in self.gathering.complete(awaited):
            arrivals, mean, by_server = self.gathering.take(round)
            latest = max(*arrivals.values(), self.now if self.network else 0.0)
            cost = self.costs.server if by_server else self.costs.all_reduce
            ready = latest + cost(len(arrivals), self.size)
            for i, own in arrivals.items():
                self.finish_waiting(i, mean, waited=latest - own, until=ready)

    def finish_waiting(self, i: int, reply: object, waited: float, until: float) -> None:
        """Client i has its reply at time `until`; of the time since it asked, `waited` was waiting."""
        self.outcome[i] = (reply, waited, until - self.times.clock[i] - waited)
        self.schedule(i, until)

    # Cells are locked first come, first served: a request starts when the cells are free, and its
    # effect is applied at once, because whoever asks later also starts later.

    def _lock(self, cells: tuple[int, ...], i: int, seconds: float) -> None:
        clock = self.times.clock[i]
        free = max(clock, *(self.busy[k] for k in cells))
        self.times.wait(i, free - clock)
        self.times.communicate(i, seconds)
        for k in cells:
            self.busy[k] = free + seconds

    def _load(self, i: int, verb: Load) -> Vector:
        self._lock((i,), i, 0.0)
        self.loaded_at[i] = self.iteration
        return self.models[i]

    def _average_with(self, i: int, verb: AverageWith) -> Vector:
        k = verb.neighbour
        if not self.present[k]:  # the call fails when the loss is noticed; there is nothing to average
            self.times.wait(i, max(0.0, self.lost_until[k] - self.times.clock[i]))
            return self.models[i]
        if self.cut and not self.linked(i, k):
            return self.models[i]
        self._lock((i, k), i, 2 * self.journey(i, k, self.states[i].c) + self.costs.mix)
        self.models[i] = self.models[k] = 0.5 * (self.models[i] + self.models[k])
        return self.models[i]

    def _add(self, i: int, verb: Add) -> Vector:
        self._lock((i,), i, 0.0)
        self.largest_delay = max(self.largest_delay, self.iteration - self.loaded_at[i])
        self.models[i] = advance(self.models[i], verb.move, verb.statistics)
        return self.models[i]

    # --- events --------------------------------------------------------------------------------

    def schedule(self, i: int, time: float) -> None:
        self.order += 1
        self.expected[i] = self.order
        heapq.heappush(self.heap, (time, self.order, i))

    def next_event(self) -> None:
        """Let the client whose gradient or reply is ready next go on."""
        time, order, i = heapq.heappop(self.heap)
        if order != self.expected[i]:
            return
        self.now = time
        if i in self.outcome:
            reply, waited, busy = self.outcome.pop(i)
            self.times.wait(i, waited)
            self.times.communicate(i, busy)
        else:
            reply = self.slope(i)
            self.times.compute_until(i, self.now)
        self.wake(i, reply)
