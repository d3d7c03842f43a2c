"""Virtual time: an event heap decides who goes on next.

Clients compute and communicate at given costs; the wall clock plays no part, so a run is the same
on every machine and the same seed gives the same run, bit for bit.
"""

from __future__ import annotations

from swiftfl.engines.world import World


class Virtual(World):
    """The world of `Setup.costs`."""

    name = "virtual"

    def advance(self, iterations: int) -> None:
        """Go on until the global count has grown by `iterations`, or the run is over."""
        target = self.iteration + iterations
        while self.iteration < target and not self.over:
            self.next_event()
