"""A network that changes, in a simulated run: `Membership` decides, `Churn` carries out.

Coefficients are renewed (`Renewals`) some seconds after a change, or clients begin at once to select them by
messages. Where nothing takes time (`World.timed_gradients` is false), a change, its notice and the renewal
that follows are one.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable

from swiftfl.engines.dynamics import Change, read_change
from swiftfl.engines.membership import Membership
from swiftfl.engines.saved import Saved, Tree
from swiftfl.engines.simulation.event_queue import NOBODY
from swiftfl.engines.simulation.record import ClientRecord
from swiftfl.engines.simulation.renewals import Renewals
from swiftfl.engines.simulation.running import StepRunner
from swiftfl.engines.simulation.world import World
from swiftfl.engines.terms import ALONE


class Churn:
    """The changes that are planned, and what clients did since their influence was last measured."""

    def __init__(self, world: World, runner: StepRunner, membership: Membership) -> None:
        self.world, self.membership = world, membership
        self._runner = runner
        self.renewals = Renewals(world, runner, membership)
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
        """Take out whoever joins later, see to the first weights, and plan the first changes."""
        world = self.world
        absent = [record for record in world.records if record.index not in self.membership.present]
        for record in absent:
            record.present = False
            world.active -= 1
            world.meetings.exchanges.exclude(record.index)
            world.mailboxes.forget(record.index)
            self._were_away.add(record.index)
        self.renewals.start(bool(absent))
        for change in self.membership.first_changes():
            self.plan(change)

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
        if world.events.heap.first()[2] != NOBODY:
            self._runner.next_event()
        else:
            world.now, number, _ = world.events.heap.pop()
            if number in self._planned:
                self._happen(self._planned.pop(number))
            else:
                self.renewals.message_arrives(number)
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
        record.was_lost = True
        self.world.unnoticed.add(record.index)
        record.lost_until = self.world.now + self.membership.dynamics.notice
        self.plan(Change(record.lost_until, "notice", record.index))
        return True

    def _goes(self, record: ClientRecord) -> bool:
        """The client is gone, whatever it was doing; False if it was not there or has finished."""
        if not record.present or record.finished:
            return False
        world, i = self.world, record.index
        world.gradients.forget(i)  # which looks at what it is parked for
        record.present = False
        record.sleep_due = 0.0
        record.selecting = False
        record.parked = record.answer = None
        self.membership.present.discard(i)
        self._were_away.add(i)
        world.active -= 1
        world.events.cancel(i)
        world.meetings.forget(i)
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

    def _leave(self, change: Change) -> bool:
        """The client leaves in good order: the others know at once."""
        record = self.world.records[change.client]
        if not self._goes(record):
            return False
        record.lost_until = self.world.now
        record.was_lost = False
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
        self._runner.start_client(record)
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

    def _plan_renewal(self) -> None:
        if self.renewals.delayed:
            self.plan(Change(self.world.now + self.membership.dynamics.renewal, "renew"))
        else:
            self.renew(Change(self.world.now, "renew"))

    def renew(self, change: Change) -> bool:
        self.renewals.renew()
        return True

    def _measure(self) -> None:
        """Renew with each client's share of the steps since the last time as its influence."""
        self._measured_at = self.world.iteration
        if self.membership.dynamics.measured:
            steps = [record.steps for record in self.world.records]
            taken = [now - then for now, then in zip(steps, self._steps_then, strict=True)]
            self.membership.measure(taken, self._were_away)
            self._steps_then = steps
            self._were_away = {record.index for record in self.world.records if not record.present}
            self.renew(Change(self.world.now, "renew"))

    # --- checkpoints ---------------------------------------------------------------------------

    def state(self) -> Tree:
        selections = self.renewals.selections
        # A change is never written again, and needs no copy: where clients crash often, many are planned.
        return {
            "membership": self.membership.state(),
            "planned": [[number, vars(change)] for number, change in self._planned.items()],
            "by_iteration": [vars(change) for change in self._by_iteration],
            "selections": None if selections is None else selections.state(),
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
        if self.renewals.selections is not None:
            self.renewals.selections.restore(saved["selections"])
            flying = set(self.renewals.selections.flying)
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
