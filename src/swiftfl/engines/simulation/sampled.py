"""Algorithm 1 exactly as printed: at each iteration one client, drawn from p, is active.

Clients are parked *at* their gradient, after line 7, so that the newest model of everybody is
already in the mailboxes. Activating client i_t lets it take its gradient, average, update, and
publish its next model: X^{t+1} = X^t W_{i_t} - step_size G. Nothing takes time here.

Where the network changes (lines 4-5), it does so between two iterations, and everybody's new weights hold
from the next one on; who is not there is not drawn.

A client that has finished, or that waits for others in an algorithm that waits, cannot act; the draw
is then repeated, so i_t ~ p among those who can.
"""

from __future__ import annotations

import numpy as np

from swiftfl.costs import FREE
from swiftfl.engines.saved import Pool, Saved, Tree
from swiftfl.engines.setup import Setup
from swiftfl.engines.simulation.engine import Simulation
from swiftfl.streams import stream
from swiftfl.verbs import Gradient, Overlapped

_BLOCK = 1024


class SampledEngine(Simulation):
    """The world of the paper's analysis."""

    name = "sampled"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup, FREE, timed=False)
        if self.churn is not None:
            self.churn.membership.dynamics.check_without_clock()
        self._draws = 0
        self._edges = np.cumsum(np.asarray(setup.influence, dtype=np.float64))
        self._edges[-1] = 1.0
        self._drawn: list[int] = []
        self._drawn_block = -1

    def draw(self) -> int:
        """The next client of the sequence i_1, i_2, ... that the seed determines."""
        block, position = divmod(self._draws, _BLOCK)
        if block != self._drawn_block:
            uniform = stream(self.setup.seed, "active", counter=block).random(_BLOCK)
            self._drawn = np.searchsorted(self._edges, uniform, side="right").tolist()
            self._drawn_block = block
        self._draws += 1
        return self._drawn[position]

    def _advance(self, target: int, events: int) -> None:
        world, runner, churn = self.world, self.runner, self.churn
        for _ in range(events):
            if world.iteration >= target or world.active == 0:
                return
            if world.events.heap:
                runner.next_event()
            else:
                i = self.draw()
                if isinstance(world.records[i].parked, Gradient | Overlapped):
                    runner.act(i)
            if churn is not None:
                churn.after_step()

    def state(self, pool: Pool) -> Tree:
        return {**super().state(pool), "draws": self._draws}

    def restore(self, saved: Saved) -> None:
        super().restore(saved)
        self._draws = saved["draws"].integer()
