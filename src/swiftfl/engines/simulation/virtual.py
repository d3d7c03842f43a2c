"""Virtual time: an event heap decides who goes on next.

Clients compute and communicate at given costs; the wall clock plays no part, so a run is the same
on every machine and the same seed gives the same run, bit for bit. Here, too, the decisions of a
changing network (`swiftfl.engines.membership`) are carried out.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

from swiftfl.engines.membership import Change, connected
from swiftfl.engines.setup import Setup
from swiftfl.engines.simulation.world import World
from swiftfl.engines.terms import ALONE, Terms
from swiftfl.graph.coefficients import promised
from swiftfl.vector import Weights

_NOBODY = -1


class Virtual(World):
    """The world of `Setup.costs`."""

    name = "virtual"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        # Nobody sees at once what another publishes at the same time: the order does not matter then.
        self.mixes_together = self.network is None and self.costs.latency > 0 and not self.costs.links
        self.changes: dict[int, Change] = {}
        self.log: list[dict[str, object]] = []
        self.logged = 0
        self.naps: dict[int, float] = {}  # seconds of sleep that are not in the clocks yet
        self.measured_at = 0
        self.steps_then = [0] * self.n
        self.were_away: set[int] = set()
        self._carry_out: dict[str, Callable[[Change], bool]] = {
            "crash": self._crash,
            "notice": self._notice,
            "leave": self._leaves,
            "join": self._arrives,
            "return": self._arrives,
            "sleep": self._sleeps,
            "edge_down": self._edge,
            "edge_up": self._edge,
            "renew": self._renew,
        }

    def start(self) -> None:
        if self.network is not None:
            for i in set(range(self.n)) - self.network.present:
                self.present[i] = False
                self.active -= 1
                self.meetings.gone[i] = math.inf
                self.mailboxes.forget(i)
                self.were_away.add(i)
            if self.active < self.n:
                for i, (w, scale) in self.network.renew().items():
                    self.adopt(i, Terms(w, scale))
            for change in self.network.first_changes():
                self.plan(change)
        super().start()

    def advance(self, iterations: int) -> None:
        """Go on until the global count has grown by `iterations`, or the run is over."""
        target = self.iteration + iterations
        if self.setup.iterations is not None:
            target = min(target, self.setup.iterations)
        if self.network is not None:
            self._advance_with_changes(target, self.network.dynamics.measure_every * self.n)
            return
        next_event, heap, mixing, mixed = self.next_event, self.heap, self.mixing, self.mixed
        while self.iteration < target:
            if mixed:
                self.wake(*mixed.popleft())
            elif mixing and not self._not_alone():
                self.mix_together()
            elif heap:
                next_event()
            else:
                return

    def _advance_with_changes(self, target: int, measure_every: int) -> None:
        while self.iteration < target and not self.over:
            self._next_change()
            if self.iteration - self.measured_at >= measure_every:
                self._measure()

    @property
    def over(self) -> bool:
        """Nothing can happen any more, or the end is reached."""
        limit = self.setup.iterations
        if limit is not None and self.iteration >= limit:
            return True
        if self.active == 0:
            return not any(change.kind in ("return", "join") for change in self.changes.values())
        return not (self.heap or self.mixing or self.mixed)

    # --- changes -------------------------------------------------------------------------------

    def plan(self, change: Change) -> None:
        self.order += 1
        self.changes[self.order] = change
        heapq.heappush(self.heap, (change.time, self.order, _NOBODY))

    def _next_change(self) -> None:
        """Carry out the next event, whether it is a client's or the network's."""
        assert self.network is not None
        time, order, who = self.heap[0]
        if who != _NOBODY:
            if who in self.naps and order == self.expected[who]:
                self.times.skip(who, self.naps.pop(who))
            self.next_event()
            return
        heapq.heappop(self.heap)
        self.now = time
        change = self.changes.pop(order)
        if self.network.holds(change) and self._carry_out[change.kind](change):
            for follower in self.network.followers(change):
                self.plan(follower)

    def _note(self, change: Change, **more: object) -> None:
        row: dict[str, object] = {"event": change.kind, "iteration": self.iteration, "time": self.now}
        if change.client >= 0:
            row["client"] = change.client
        if change.edge is not None:
            row["edge"] = list(change.edge)
        self.log.append({**row, **more})

    def take_log(self) -> list[dict[str, object]]:
        """What happened to the network since this was last asked."""
        taken, self.log = self.log, []
        self.logged += len(taken)
        return taken

    # Each of the following carries out a change, and tells whether it made a difference.

    def _crash(self, change: Change) -> bool:
        """Client i stops where it is; nobody knows yet."""
        i = change.client
        if not self._goes(i):
            return False
        assert self.network is not None
        self._note(change)
        self.network.unnoticed.add(i)
        self.lost_until[i] = self.now + self.network.dynamics.notice
        self.plan(Change(self.lost_until[i], "notice", i))
        return True

    def _goes(self, i: int) -> bool:
        """Client i is gone, whatever it was doing; False if it was not there or has finished."""
        assert self.network is not None
        if not self.present[i] or self.finished[i]:
            return False
        self.present[i] = False
        self.network.present.discard(i)
        self.active -= 1
        self.were_away.add(i)
        self.naps.pop(i, None)
        self.expected[i] = 0
        self.parked[i], self.slopes[i] = None, None
        self.outcome.pop(i, None)
        if i in self.pending:
            self.pending.remove(i)
        self.meetings.forget(i)
        self.gathering.forget(i)
        return True

    def _notice(self, change: Change) -> bool:
        """The neighbours know: its weight stays with them, nobody waits for it, and CCS is renewed."""
        i = change.client
        assert self.network is not None
        if i not in self.network.unnoticed or self.now < self.lost_until[i]:
            return False  # it was back before anybody noticed (and perhaps was lost again since)
        self._note(change)
        self._strike_off(i)
        self.plan_renewal()
        return True

    def _strike_off(self, i: int) -> None:
        assert self.network is not None
        self.network.unnoticed.discard(i)
        self.network.known.discard(i)
        self.mailboxes.forget(i)
        self.nobody_waits_for(i)

    def plan_renewal(self) -> None:
        assert self.network is not None
        self.plan(Change(self.now + self.network.dynamics.renewal, "renew"))

    def _leaves(self, change: Change) -> bool:
        """Client i says goodbye: the others know at once."""
        if not self._goes(change.client):
            return False
        self.lost_until[change.client] = self.now
        self._note(change)
        self._strike_off(change.client)
        self.plan_renewal()
        return True

    def _arrives(self, change: Change) -> bool:
        """Client i starts from a neighbour's newest model, alone until the next renewal."""
        i = change.client
        assert self.network is not None
        if self.present[i] or self.finished[i]:
            return False
        source = self._teacher(i)
        self._note(change, model_of=source)
        self._strike_off(i)  # even if nobody had noticed yet: it is no longer in their rounds
        self.present[i] = True
        self.network.present.add(i)
        self.network.known.add(i)
        self.active += 1
        self.renewed.pop(i, None)
        self.adopt(i, ALONE)
        self.times.skip(i, max(0.0, self.now - self.times.clock[i]))
        self.models[i] = self.models[source]
        self.states[i] = self.setup.first_state(self.models[i], self._counter(i))
        self.replies[i].clear()
        self.generators[i] = self.new_step(i)
        self.resume(i, None)
        self.plan_renewal()
        return True

    def _teacher(self, i: int) -> int:
        """Whose newest model client i starts from: its most advanced neighbour's, or its own."""
        assert self.network is not None
        return max(self.network.neighbours(i), key=lambda k: (self.states[k].c, -k), default=i)

    def _counter(self, i: int) -> int:
        """Where a client that arrives goes on: where it was, or in the round of the others.

        Those who have their reply already are past their round. Those who have finished do not count.
        """
        active = (k for k in self.members() if k != i and not self.finished[k])
        others = [self.states[k].c + (k in self.outcome) for k in active]
        return max(others) if self.in_rounds and others else self.states[i].c

    def _sleeps(self, change: Change) -> bool:
        """Client i stops for a while and then goes on where it was.

        One that waits for others sleeps when it has what it waits for.
        """
        i = change.client
        if not self.present[i] or self.finished[i]:
            return False
        self._note(change, seconds=change.seconds)
        self.naps[i] = self.naps.get(i, 0.0) + change.seconds
        due = next((time for time, order, _ in self.heap if order == self.expected[i]), None)
        if due is not None:
            self.schedule(i, due + change.seconds)
        return True

    def finish_waiting(self, i: int, reply: object, waited: float, until: float) -> None:
        super().finish_waiting(i, reply, waited, until)
        if i in self.naps:
            self.schedule(i, until + self.naps[i])

    def _edge(self, change: Change) -> bool:
        assert self.network is not None
        assert change.edge is not None
        i, j = edge = (min(change.edge), max(change.edge))
        up = change.kind == "edge_up"
        if not self.network.change_edge(edge, up):
            return False
        self._note(change)
        if up:
            self.cut.discard(edge)
            self.mailboxes.since[i, j] = self.mailboxes.since[j, i] = self.now
        else:
            self.cut.add(edge)
        self.plan_renewal()
        return True

    def _renew(self, change: Change) -> bool:
        assert self.network is not None
        renewed = self.network.renew()
        first = self._first_rounds({i: w for i, (w, _) in renewed.items()})
        for i, (w, scale) in renewed.items():
            terms = Terms(w, scale, first[i])
            if self.finished[i]:
                self.renewed.pop(i, None)
                self.adopt(i, terms)
                continue
            earlier = [t for t in self.renewed.get(i, ()) if t.from_round < first[i]]
            self.renewed[i] = [*earlier, terms]
            if i in self.meetings.gone:
                self.meetings.gone[i] = min(self.meetings.gone[i], first[i])
        checked = promised(self.network.method)
        self._note(change, components=len(self.network.components()), clients=len(renewed), checked=checked)
        return True

    def _first_rounds(self, weights: dict[int, Weights]) -> dict[int, int]:
        """From which round each client's new weights hold.

        Where clients meet in rounds, all whom old or new edges join switch together, at the first round
        that none of them has begun: both ends of an edge then agree on it in every round.
        """
        if not self.in_rounds:
            return dict.fromkeys(weights, 0)
        edges = set()
        for i, new in weights.items():
            for w in (new, self.terms[i].w, *(terms.w for terms in self.renewed.get(i, ()))):
                edges |= {(min(i, k), max(i, k)) for k in w.of}
        group = [0] * self.n if self.meetings.everyone else connected(self.n, edges)
        first: dict[int, int] = {}
        for i in weights:
            first[group[i]] = max(first.get(group[i], 0), self.states[i].c + 1)
        return {i: first[group[i]] for i in weights}

    def _measure(self) -> None:
        """Renew with each client's share of the steps since the last time as its influence."""
        assert self.network is not None
        self.measured_at = self.iteration
        if self.network.dynamics.measured:
            steps = self.times.steps
            taken = [now - then for now, then in zip(steps, self.steps_then, strict=True)]
            self.network.measure(taken, self.were_away)
            self.steps_then = list(steps)
            self.were_away = {i for i in range(self.n) if not self.present[i]}
            self._renew(Change(self.now, "renew"))
