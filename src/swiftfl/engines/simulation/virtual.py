"""Virtual time: an event queue decides who goes on next.

Clients compute and communicate at given costs; the wall clock plays no part, so a run is the same
on every machine and the same seed gives the same run, bit for bit. Where the network changes, a `Churn`
carries out what happens to it.
"""

from __future__ import annotations

from swiftfl.engines.setup import Setup
from swiftfl.engines.simulation.churn import Churn
from swiftfl.engines.simulation.engine import Simulation


class VirtualEngine(Simulation):
    """The world of `Setup.costs`."""

    name = "virtual"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup, setup.costs, timed=True)

    def _advance(self, target: int, events: int) -> None:
        if self.churn is not None:
            self._advance_with_changes(self.churn, target, events)
            return
        world, runner = self.world, self.runner
        queue, mixes = world.events, world.mixes
        heap, ready = queue.heap, mixes.ready
        for _ in range(events):
            if world.iteration >= target:
                return
            if ready:
                runner.wake(*ready.popleft())
            elif mixes.waiting and (mixes.full or not queue.another_at(world.now)):
                mixes.serve()
            elif heap:
                runner.next_event()
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
