"""A network that changes, in a simulated run: `Membership` decides, `Churn` carries out.

Where nothing takes time (`World.timed_gradients` is false), a change, its notice and the renewal that follows
are one: the new weights hold from the next client step on, also for clients that are in the middle of
theirs. Only those who meet in rounds take them later, as in virtual time.

Coefficients are computed for everybody, `renewal` seconds after a change; or clients select them themselves
(`Selections`), which begins at once and takes as long as its messages travel.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from swiftfl.engines.assignment import first_assignments
from swiftfl.engines.membership import Change, Membership, connected, read_change
from swiftfl.engines.saved import Saved, Tree
from swiftfl.engines.simulation.event_queue import NOBODY
from swiftfl.engines.simulation.record import ClientRecord
from swiftfl.engines.simulation.selections import Selections
from swiftfl.engines.simulation.world import World
from swiftfl.engines.terms import ALONE, Terms
from swiftfl.graph.coefficients import promised
from swiftfl.vector import Weights


class Churn:
    """The changes that are planned, and what clients did since their influence was last measured."""

    def __init__(self, world: World, membership: Membership) -> None:
        self.world, self.membership = world, membership
        self.selections = Selections(world) if world.setup.ccs == "distributed" else None
        self._planned: dict[int, Change] = {}
        self._by_iteration: list[Change] = []  # in their order
        self._measure_every = membership.dynamics.measure_every * world.n
        self._measured_at = 0
        self._steps_then = [0] * world.n
        self._were_away: set[int] = set()
        self._carry_out: dict[str, Callable[[Change], bool]] = {
            "crash": self._crash,
            "notice": self._notice,
            "leave": self._leave,
            "join": self._arrive,
            "return": self._arrive,
            "sleep": self._sleep,
            "edge_down": self._edge,
            "edge_up": self._edge,
            "renew": self.renew,
        }

    def start(self) -> None:
        """Take out whoever joins later, plan the first changes, and let clients select their weights."""
        world = self.world
        absent = [record for record in world.records if record.index not in self.membership.present]
        for record in absent:
            record.present = False
            world.active -= 1
            world.exchanges.exclude(record.index)
            world.mailboxes.forget(record.index)
            self._were_away.add(record.index)
        if self.selections is not None:
            self._first_selection(self.selections, bool(absent))
        elif absent:
            self._adopt_first(self.membership.renew())
        for change in self.membership.first_changes():
            self.plan(change)

    def _adopt_first(self, weights: dict[int, tuple[Weights, float]]) -> None:
        for i, (w, scale) in weights.items():
            self.world.adopt(self.world.records[i], Terms(w, scale))

    def _first_selection(self, selections: Selections, renewed: bool) -> None:
        """Line 2 of Algorithm 1: nobody starts before it has its weights."""
        told = (
            self.membership.assignments() if renewed else dict(enumerate(first_assignments(self.world.setup)))
        )
        if not self.world.timed_gradients:
            selections.run_at_once(told)
            self._adopt_first(selections.results())
            return
        for i in told:
            self.world.records[i].selecting = True
        self._selected(selections, selections.begin(told))

    def plan(self, change: Change) -> None:
        if change.time is not None:
            self._planned[self.world.events.plan(change.time)] = change
        else:
            bisect.insort(self._by_iteration, change, key=_iteration)

    @property
    def somebody_will_come(self) -> bool:
        return any(change.kind in ("return", "join") for change in self._planned.values())

    def next_event(self) -> None:
        """Carry out the next event, whether it is a client's or the network's."""
        world = self.world
        if world.events.heap[0][2] != NOBODY:
            world.next_event()
        else:
            world.now, number, _ = world.events.pop()
            if number in self._planned:
                self._happen(self._planned.pop(number))
            else:
                self._message_arrives(number)
        self.after_step()
        if world.iteration - self._measured_at >= self._measure_every:
            self._measure()

    def after_step(self) -> None:
        """Carry out the changes that are due by the number of client steps."""
        while self._by_iteration and _iteration(self._by_iteration[0]) <= self.world.iteration:
            self._happen(self._by_iteration.pop(0))

    def _happen(self, change: Change) -> None:
        if self.membership.holds(change) and self._carry_out[change.kind](change):
            for follower in self.membership.followers(change, self.world.now):
                self.plan(follower)

    def _note(self, change: Change, **more: object) -> None:
        if change.edge is not None:
            more = {"edge": list(change.edge), **more}
        if change.client >= 0:
            more = {"client": change.client, **more}
        self.world.note(change.kind, **more)

    # Each of the following carries out a change, and tells whether it made a difference.

    def _crash(self, change: Change) -> bool:
        """The client stops where it is; nobody knows yet."""
        record = self.world.records[change.client]
        if not self._goes(record):
            return False
        self._note(change)
        self.world.unnoticed.add(record.index)
        record.lost_until = self.world.now + self.membership.dynamics.notice
        self.plan(Change(record.lost_until, "notice", record.index))
        return True

    def _goes(self, record: ClientRecord) -> bool:
        """The client is gone, whatever it was doing; False if it was not there or has finished."""
        if not record.present or record.finished:
            return False
        world, i = self.world, record.index
        record.present = False
        record.sleep_due = 0.0
        record.selecting = False
        record.parked = record.answer = None
        self.membership.present.discard(i)
        self._were_away.add(i)
        world.active -= 1
        world.events.cancel(i)
        world.gradients.forget(i)
        world.exchanges.forget(i)
        world.reductions.forget(i)
        return True

    def _notice(self, change: Change) -> bool:
        """The neighbours know: its weight stays with them, nobody waits for it, and CCS is renewed."""
        world, record = self.world, self.world.records[change.client]
        if record.index not in world.unnoticed or world.now < record.lost_until:
            return False  # it was back before anybody noticed (and perhaps was lost again since)
        self._note(change)
        self._strike_off(record)
        self._plan_renewal()
        return True

    def _strike_off(self, record: ClientRecord) -> None:
        """Everybody knows that the client is gone."""
        self.world.unnoticed.discard(record.index)
        self.membership.known.discard(record.index)
        self.world.mailboxes.forget(record.index)
        self.world.nobody_waits_for(record)

    def _plan_renewal(self) -> None:
        if self.world.timed_gradients and self.selections is None:
            self.plan(Change(self.world.now + self.membership.dynamics.renewal, "renew"))
        else:
            self._renew_now()

    def _leave(self, change: Change) -> bool:
        """The client leaves in good order: the others know at once."""
        record = self.world.records[change.client]
        if not self._goes(record):
            return False
        record.lost_until = self.world.now
        self._note(change)
        self._strike_off(record)
        self._plan_renewal()
        return True

    def _arrive(self, change: Change) -> bool:
        """The client starts from a neighbour's newest model, alone until the next renewal."""
        world, record = self.world, self.world.records[change.client]
        if record.present or record.finished:
            return False
        source = self._source(record.index)
        self._note(change, model_of=source)
        self._strike_off(record)  # even if nobody had noticed yet: it is no longer in their rounds
        record.present = True
        self.membership.present.add(record.index)
        self.membership.known.add(record.index)
        world.active += 1
        record.next_terms.clear()
        world.adopt(record, ALONE)
        record.clock.sleep(max(0.0, world.now - record.clock.now))
        record.model = world.records[source].model
        record.start = world.setup.first_state(record.model, self._counter(record))
        record.discarding = record.move_left_out = False
        world.start_client(record)
        self._plan_renewal()
        return True

    def _source(self, i: int) -> int:
        """Whose newest model client i starts from: its most advanced neighbour's, or its own."""
        records = self.world.records
        return max(self.membership.neighbours(i), key=lambda k: (records[k].start.c, -k), default=i)

    def _counter(self, record: ClientRecord) -> int:
        """Where a client that arrives goes on: where it was, or in the round of the others.

        Those who have their reply already are past their round. Those who have finished do not count.
        """
        others = [
            other.start.c + (other.answer is not None)
            for other in self.world.records
            if other.present and not other.finished and other is not record
        ]
        return max(others) if self.world.in_rounds and others else record.start.c

    def _sleep(self, change: Change) -> bool:
        """The client stops for a while and then goes on where it was.

        One that waits for others sleeps when it has what it waits for.
        """
        record = self.world.records[change.client]
        if not record.present or record.finished:
            return False
        self._note(change, seconds=change.seconds)
        record.sleep_due += change.seconds
        due = self.world.events.due(record.index)
        if due is not None:
            self.world.events.schedule(record.index, due + change.seconds)
        return True

    def _edge(self, change: Change) -> bool:
        assert change.edge is not None
        up = change.kind == "edge_up"
        if not self.membership.change_edge(change.edge, up):
            return False
        self._note(change)
        if up:
            self.world.links.join(*change.edge, self.world.now)
        else:
            self.world.links.cut(*change.edge)
        self._plan_renewal()
        return True

    # --- renewal -------------------------------------------------------------------------------

    def renew(self, change: Change) -> bool:
        """New coefficients, computed for everybody who is known to be there."""
        renewed = self.membership.renew()
        self._give_all(renewed)
        self._note_renewal(len(renewed))
        return True

    def _renew_now(self) -> None:
        if self.selections is None:
            self.renew(Change(self.world.now, "renew"))
        elif self.world.timed_gradients:
            self._selected(self.selections, self.selections.begin(self.membership.assignments()))
        else:
            self.selections.run_at_once(self.membership.assignments())
            self._give_all(self.selections.results())
            self._note_renewal(len(self.membership.known))

    def _note_renewal(self, clients: int) -> None:
        components, checked = len(self.membership.components()), promised(self.membership.method)
        self.world.note("renew", components=components, clients=clients, checked=checked)

    def _give_all(self, renewed: Mapping[int, tuple[Weights, float]]) -> None:
        """Everybody's new weights, each from a round on."""
        first = self._first_rounds({i: w for i, (w, _) in renewed.items()})
        for i, (w, scale) in renewed.items():
            self._give(self.world.records[i], Terms(w, scale, first[i]))

    def _give(self, record: ClientRecord, terms: Terms) -> None:
        """A client's new weights, which it takes between two steps."""
        world, first = self.world, terms.from_round
        if record.finished:
            record.next_terms.clear()
            world.adopt(record, terms)
        elif not (world.timed_gradients or world.in_rounds):
            world.adopt_in_step(record, terms)
        else:
            earlier = [waiting for waiting in record.next_terms if waiting.from_round < first]
            record.next_terms = [*earlier, terms]
            world.exchanges.include(record.index, first)

    # --- weights that clients select themselves, in virtual time -------------------------------

    def _message_arrives(self, number: int) -> None:
        assert self.selections is not None
        self._selected(self.selections, self.selections.deliver(number))

    def _selected(self, selections: Selections, clients: Sequence[int]) -> None:
        """Clients have their weights. Where they meet in rounds, all take them when the last one has."""
        if not self.world.in_rounds:
            for i in clients:
                self._take_selected(i, Terms(*selections.result(i)))
        if not (clients and selections.over):
            return
        results = selections.results()
        if self.world.in_rounds:
            first = self._first_rounds({i: w for i, (w, _) in results.items()})
            for k, (w, scale) in results.items():
                self._take_selected(k, Terms(w, scale, first[k]))
        if selections.renewal:
            self._note_renewal(len(results))

    def _take_selected(self, i: int, terms: Terms) -> None:
        record = self.world.records[i]
        if not record.selecting:
            self._give(record, terms)
            return
        record.selecting = False
        self.world.adopt(record, Terms(terms.w, terms.scale))
        record.clock.wait(self.world.now - record.clock.now)
        record.clock.sleep(record.sleep_due)
        record.sleep_due = 0.0
        self.world.start_client(record)

    def _first_rounds(self, weights: dict[int, Weights]) -> dict[int, int]:
        """From which round each client's new weights hold.

        Where clients meet in rounds, all whom old or new edges join switch together, at the first round
        that none of them has begun: both ends of an edge then agree on it in every round.
        """
        world = self.world
        if not world.in_rounds:
            return dict.fromkeys(weights, 0)
        edges = set()
        for i, new in weights.items():
            record = world.records[i]
            for w in (new, record.terms.w, *(terms.w for terms in record.next_terms)):
                edges |= {(min(i, k), max(i, k)) for k in w.of}
        group = [0] * world.n if world.exchanges.everyone else connected(world.n, edges)
        first: dict[int, int] = {}
        for i in weights:
            first[group[i]] = max(first.get(group[i], 0), world.records[i].start.c + 1)
        return {i: first[group[i]] for i in weights}

    def _measure(self) -> None:
        """Renew with each client's share of the steps since the last time as its influence."""
        self._measured_at = self.world.iteration
        if self.membership.dynamics.measured:
            steps = [record.steps for record in self.world.records]
            taken = [now - then for now, then in zip(steps, self._steps_then, strict=True)]
            self.membership.measure(taken, self._were_away)
            self._steps_then = steps
            self._were_away = {record.index for record in self.world.records if not record.present}
            self._renew_now()

    # --- checkpoints ---------------------------------------------------------------------------

    def state(self) -> Tree:
        return {
            "membership": self.membership.state(),
            "planned": [[number, asdict(change)] for number, change in self._planned.items()],
            "by_iteration": [asdict(change) for change in self._by_iteration],
            "selections": None if self.selections is None else self.selections.state(),
            "measured_at": self._measured_at,
            "steps_then": list(self._steps_then),
            "were_away": sorted(self._were_away),
        }

    def restore(self, saved: Saved) -> None:
        n = self.world.n
        self.membership.restore(saved["membership"])
        self._planned = {}
        for item in saved["planned"].items():
            number, change = item.items(2)
            self._planned[number.integer(1)] = read_change(change, n)
            if not change["iteration"].missing:
                change.fail("is not planned by its time")
        self._by_iteration = []
        for change in saved["by_iteration"].items():
            if not change["time"].missing:
                change.fail("is not planned by its iteration")
            bisect.insort(self._by_iteration, read_change(change, n), key=_iteration)
        flying: set[int] = set()
        if self.selections is not None:
            self.selections.restore(saved["selections"])
            flying = set(self.selections.flying)
        if {*self._planned, *flying} != self.world.events.planned() or flying.intersection(self._planned):
            saved["planned"].fail("does not have the changes that the event queue has")
        if not all(map(self.membership.knows, self._planned.values())):
            saved["planned"].fail("has a random change that was never drawn")
        self._measured_at = saved["measured_at"].integer(0, self.world.iteration)
        self._steps_then = [item.integer() for item in saved["steps_then"].items(n)]
        self._were_away = set(saved["were_away"].clients(n))
        for record in self.world.records:
            if record.present != (record.index in self.membership.present):
                saved["membership"]["present"].fail(f"disagrees with client {record.index}")


def _iteration(change: Change) -> int:
    assert change.iteration is not None
    return change.iteration
