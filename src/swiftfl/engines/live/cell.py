"""A client's model cell as the client itself sees it.

Others average into the cell, its running buffers included. Where these are to stay the client's own
(`Setup.buffers`), it keeps them here and looks at those of the cell no more.

Cells are in host memory, where others find them: a move that was computed on a device comes down before the
cell is locked. What is seen of a cell is in host memory, too; who computes with it puts it where it belongs.
"""

from __future__ import annotations

import numpy as np

from swiftfl.transports.base import Transport
from swiftfl.vector import Statistics, Vector, advance


class Cell:
    """The cell of the client at this end of a transport; `own` numbers at its end are not averaged."""

    def __init__(self, transport: Transport, x: Vector, own: int = 0) -> None:
        self._transport, self._own = transport, own
        self._buffers: Vector = np.array(x[x.size - own :])

    def load(self) -> Vector:
        return self._seen(self._transport.load())

    def average_with(self, neighbour: int) -> Vector:
        return self._seen(self._transport.average_with(neighbour))

    def add(self, move: Vector, statistics: Statistics | None) -> Vector:
        move, statistics = np.asarray(move), _on_host(statistics)
        x = self._transport.add(move, statistics)
        if self._own:
            self._buffers = advance(self._buffers, move[-self._own :], statistics)
        return self._seen(x)

    def _seen(self, x: Vector) -> Vector:
        """Transports give copies, so it may be written into."""
        if self._own:
            x[-self._own :] = self._buffers
        return x


def _on_host(statistics: Statistics | None) -> Statistics | None:
    if statistics is None or isinstance(statistics.values, np.ndarray):
        return statistics
    rate = statistics.rate
    return Statistics(np.asarray(statistics.values), rate if isinstance(rate, float) else np.asarray(rate))
