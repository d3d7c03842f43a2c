"""Models as cells that others may average into, locked first come, first served.

A request starts when its cells are free, and its effect is applied at once, because whoever asks later
also starts later.
"""

from __future__ import annotations

from swiftfl.engines.saved import Saved, Tree
from swiftfl.engines.simulation.clocks import Clock


class Cells:
    """Until when each cell is in use, and how many steps others took between a load and its add."""

    __slots__ = ("_busy", "_loaded_at", "largest_delay")

    def __init__(self, n: int) -> None:
        self._busy = [0.0] * n
        self._loaded_at = [0] * n
        self.largest_delay = 0

    def lock(self, cells: tuple[int, ...], clock: Clock, seconds: float) -> None:
        """Wait until the cells are free, and keep them for so many seconds."""
        free = max(clock.now, *(self._busy[k] for k in cells))
        clock.wait(free - clock.now)
        clock.communicate(seconds)
        for k in cells:
            self._busy[k] = free + seconds

    def loaded(self, i: int, iteration: int) -> None:
        self._loaded_at[i] = iteration

    def added(self, i: int, iteration: int) -> None:
        self.largest_delay = max(self.largest_delay, iteration - self._loaded_at[i])

    def state(self) -> Tree:
        return {
            "busy": list(self._busy),
            "loaded_at": list(self._loaded_at),
            "largest_delay": self.largest_delay,
        }

    def restore(self, saved: Saved) -> None:
        n = len(self._busy)
        self._busy = [item.number(0.0) for item in saved["busy"].items(n)]
        self._loaded_at = [item.integer() for item in saved["loaded_at"].items(n)]
        self.largest_delay = saved["largest_delay"].integer()
