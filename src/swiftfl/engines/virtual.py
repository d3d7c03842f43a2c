"""Virtual time: an event heap decides who goes on next.

Clients compute and communicate at given costs; the wall clock plays no part, so a run is the same
on every machine and the same seed gives the same run, bit for bit. Here, too, the decisions of a
changing network (`swiftfl.engines.network`) are carried out.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

from swiftfl.client import State
from swiftfl.engines.network import Change
from swiftfl.engines.setup import Setup
from swiftfl.engines.world import Terms, World
from swiftfl.vector import Vector, Weights

_NOBODY = -1
_ALONE = Weights(1.0, {})


class Virtual(World):
    """The world of `Setup.costs`."""

    name = "virtual"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.changes: dict[int, Change] = {}
        self.log: list[dict[str, object]] = []
        self.measured_at = 0
        self.steps_then = [0] * self.n
        self._carry_out: dict[str, Callable[[Change], None]] = {
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
            if self.active < self.n:
                for i, w in self.network.renew().items():
                    self.adopt(i, Terms(w))
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
        next_event, heap = self.next_event, self.heap
        while self.iteration < target and heap:
            next_event()

    def _advance_with_changes(self, target: int, measure_every: int) -> None:
        while self.iteration < target and not self.over:
            self._next_change()
            if self.iteration - self.measured_at >= measure_every:
                self._measure()

    @property
    def over(self) -> bool:
        """Nothing can happen any more, or the end is reached."""
        if self.active == 0 and any(change.kind in ("return", "join") for change in self.changes.values()):
            return False
        return super().over or not self.heap

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
            self.next_event()
            return
        heapq.heappop(self.heap)
        self.now = time
        change = self.changes.pop(order)
        self._carry_out[change.kind](change)
        for follower in self.network.followers(change):
            self.plan(follower)

    def _note(self, change: Change, **more: object) -> None:
        row: dict[str, object] = {"event": change.kind, "iteration": self.iteration, "time": self.now}
        if change.client >= 0:
            row["client"] = change.client
        if change.edge is not None:
            row["edge"] = list(change.edge)
        self.log.append({**row, **more})

    def _crash(self, change: Change) -> None:
        """Client i stops where it is; nobody knows yet."""
        i = change.client
        if not self._goes(i):
            return
        assert self.network is not None
        self._note(change)
        self.lost_until[i] = self.now + self.network.dynamics.notice
        self.plan(Change(self.lost_until[i], "notice", i))

    def _goes(self, i: int) -> bool:
        """Client i is gone, whatever it was doing; False if it was not there or has finished."""
        assert self.network is not None
        if not self.present[i] or self.finished[i]:
            return False
        self.present[i] = False
        self.network.present.discard(i)
        self.active -= 1
        self.expected[i] = 0
        self.parked[i], self.slopes[i] = None, None
        self.outcome.pop(i, None)
        if i in self.pending:
            self.pending.remove(i)
        self.meetings.forget(i)
        self.gathering.forget(i)
        return True

    def _notice(self, change: Change) -> None:
        """The neighbours know: its weight stays with them, nobody waits for it, and CCS is renewed."""
        i = change.client
        assert self.network is not None
        if self.present[i]:
            return  # it was back before anybody noticed
        self._note(change)
        self.network.known.discard(i)
        self.mailboxes.forget(i)
        self.nobody_waits_for(i)
        self.plan(Change(self.now + self.network.dynamics.renewal, "renew"))

    def _leaves(self, change: Change) -> None:
        if self._goes(change.client):
            self.lost_until[change.client] = self.now
            self._note(change)
            self._notice(Change(self.now, "notice", change.client))

    def _arrives(self, change: Change) -> None:
        """Client i starts from a neighbour's newest model, alone until the next renewal."""
        i = change.client
        assert self.network is not None
        if self.present[i] or self.finished[i]:
            return
        self._note(change)
        x, source = self._newest_nearby(i)
        if i in self.network.known:
            self.nobody_waits_for(i)  # it is back before anybody noticed: no longer in their rounds
        self.present[i] = True
        self.network.present.add(i)
        self.network.known.add(i)
        self.active += 1
        self.mailboxes.forget(i)
        self.renewed.pop(i, None)
        self.adopt(i, Terms(_ALONE))
        self.times.skip(i, max(0.0, self.now - self.times.clock[i]))
        self.models[i] = x
        self.states[i] = State(x, self._counter(i))
        self.replies[i].clear()
        self.generators[i] = self.new_step(i)
        self.log[-1]["model_of"] = source
        self.resume(i, None)
        self.plan(Change(self.now + self.network.dynamics.renewal, "renew"))

    def _newest_nearby(self, i: int) -> tuple[Vector, int]:
        """The newest model of the first neighbour that has one; its own last one if there is none."""
        assert self.network is not None
        for k in self.network.neighbours(i):
            if self.mailboxes.letters[k]:
                return self.mailboxes.letters[k][-1].x, k
        return self.models[i], i

    def _counter(self, i: int) -> int:
        """Where a client that arrives goes on: where it was, or with the rounds of the others."""
        others = [self.states[k].c for k in self.members() if k != i]
        return max([self.states[i].c, *others]) if self.in_rounds else self.states[i].c

    def _sleeps(self, change: Change) -> None:
        """Client i stops for a while and then goes on where it was."""
        i = change.client
        if not self.present[i] or not self.expected[i] or self.finished[i]:
            return
        self._note(change, seconds=change.seconds)
        due = next(time for time, order, _ in self.heap if order == self.expected[i])
        self.times.skip(i, change.seconds)
        self.schedule(i, due + change.seconds)

    def _edge(self, change: Change) -> None:
        assert self.network is not None
        assert change.edge is not None
        i, j = edge = (min(change.edge), max(change.edge))
        up = change.kind == "edge_up"
        if not self.network.change_edge(edge, up):
            return
        self._note(change)
        if up:
            self.cut.discard(edge)
            self.mailboxes.since[i, j] = self.mailboxes.since[j, i] = self.now
        else:
            self.cut.add(edge)
        self.plan(Change(self.now + self.network.dynamics.renewal, "renew"))

    def _renew(self, change: Change) -> None:
        assert self.network is not None
        weights = self.network.renew()
        first = 1 + max((self.states[i].c for i in weights), default=0) if self.in_rounds else 0
        for i, w in weights.items():
            self.renewed[i] = Terms(w, self.network.scale(i), first)
            if i in self.meetings.gone and not self.finished[i]:
                self.meetings.gone[i] = first
        self._note(change, components=len(self.network.components()), clients=len(weights), checked="abcd")

    def _measure(self) -> None:
        """Renew with each client's share of the steps since the last time as its influence."""
        assert self.network is not None
        self.measured_at = self.iteration
        if self.network.dynamics.measured:
            steps = self.times.steps
            self.network.measure([now - then for now, then in zip(steps, self.steps_then, strict=True)])
            self.steps_then = list(steps)
            self._renew(Change(self.now, "renew"))
