"""Algorithm 1 exactly as printed: at each iteration one client, drawn from p, is active.

Clients are parked *at* their gradient, after line 7, so that the newest model of everybody is
already in the mailboxes. Activating client i_t lets it take its gradient, average, update, and
publish its next model: X^{t+1} = X^t W_{i_t} - step_size G. Nothing takes time here.

A client that has finished, or that waits for others in an algorithm that waits, cannot act; the draw
is then repeated, so i_t ~ p among those who can.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from swiftfl.costs import FREE
from swiftfl.engines.setup import Setup
from swiftfl.engines.simulation.world import PARKED, World
from swiftfl.streams import stream
from swiftfl.verbs import Gradient

_BLOCK = 1024


class Sampled(World):
    """The world of the paper's analysis."""

    name = "sampled"

    def __init__(self, setup: Setup) -> None:
        super().__init__(replace(setup, costs=FREE))
        self.draws = 0
        self._edges = np.cumsum(np.asarray(setup.influence, dtype=np.float64))
        self._edges[-1] = 1.0
        self._drawn: list[int] = []
        self._drawn_block = -1

    def _gradient(self, i: int, verb: Gradient) -> object:
        self.pending.append(i)
        return PARKED

    def draw(self) -> int:
        """The next client of the sequence i_1, i_2, ... that the seed determines."""
        block, position = divmod(self.draws, _BLOCK)
        if block != self._drawn_block:
            uniform = stream(self.setup.seed, "active", counter=block).random(_BLOCK)
            self._drawn = np.searchsorted(self._edges, uniform, side="right").tolist()
            self._drawn_block = block
        self.draws += 1
        return self._drawn[position]

    def advance(self, iterations: int) -> None:
        """Activate clients until the global count has grown by `iterations`, or the run is over."""
        target = self.iteration + iterations
        while self.iteration < target and not self.over:
            if self.heap:
                self.next_event()
                continue
            i = self.draw()
            if isinstance(self.parked[i], Gradient):
                self.wake(i, self.slope(i))
