"""Virtual time: an event queue decides who goes on next.

Clients compute and communicate at given costs; the wall clock plays no part, so a run is the same
on every machine and the same seed gives the same run, bit for bit. Where the network changes, a `Churn`
carries out what happens to it.
"""

from __future__ import annotations

from typing import Any

from swiftfl.engines.saved import Pool, Saved, Tree
from swiftfl.engines.setup import Setup
from swiftfl.engines.simulation.churn import Churn
from swiftfl.engines.simulation.engine import Simulation
from swiftfl.engines.simulation.world import World


class Virtual(Simulation):
    """The world of `Setup.costs`."""

    name = "virtual"

    def __init__(self, setup: Setup) -> None:
        membership = None if setup.network is None else setup.network()
        super().__init__(setup, World(setup, setup.costs, changing=membership is not None))
        self.churn = None if membership is None else Churn(self.world, membership)

    def start(self) -> None:
        if self.churn is not None:
            self.churn.start()
        super().start()

    def _advance(self, target: int, events: int) -> None:
        if self.churn is not None:
            self._advance_with_changes(self.churn, target, events)
            return
        world, queue, mixes = self.world, self.world.events, self.world.mixes
        heap, ready = queue.heap, mixes.ready
        for _ in range(events):
            if world.iteration >= target:
                return
            if ready:
                world.wake(*ready.popleft())
            elif mixes.waiting and not queue.another_at(world.now):
                mixes.serve()
            elif heap:
                world.next_event()
            else:
                return

    def _advance_with_changes(self, churn: Churn, target: int, events: int) -> None:
        for _ in range(events):
            if self.world.iteration >= target or self.over:
                return
            churn.next_event()

    @property
    def over(self) -> bool:
        """Nothing can happen any more, or the end is reached."""
        world, limit = self.world, self.setup.iterations
        if limit is not None and world.iteration >= limit:
            return True
        if world.active == 0:
            return self.churn is None or not self.churn.somebody_will_come
        return not (world.events.heap or world.mixes.waiting or world.mixes.ready)

    def figures(self) -> dict[str, Any]:
        """Of a network that changes also who is not there, and how often weights were renewed."""
        if self.churn is None:
            return super().figures()
        lost = [record.index for record in self.world.records if not record.present]
        return {**super().figures(), "lost": lost, "renewals": self.churn.membership.renewals}

    def state(self, pool: Pool) -> Tree:
        return {**super().state(pool), "churn": None if self.churn is None else self.churn.state()}

    def restore(self, saved: Saved) -> None:
        super().restore(saved)
        if (self.churn is None) != saved["churn"].missing:
            saved["churn"].fail("does not fit the run, whose network changes (or not) otherwise")
        if self.churn is not None:
            self.churn.restore(saved["churn"])
