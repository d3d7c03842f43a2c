"""What an engine and its clients on one machine tell each other without ever waiting: a shared table.

Each client writes its own row and nobody else's; the engine writes one row of orders. All entries are
aligned 64-bit numbers, so that none is ever seen half written. The table is anonymous memory, inherited
by fork: it has no name to leave behind.
"""

from __future__ import annotations

import math
import mmap

import numpy as np
import numpy.typing as npt

from swiftfl.engines.live.client import Order, Tally
from swiftfl.engines.live.inbox import REASONS

COLUMNS = ("c", "life", "phase", "compute", "communication", "waiting", "loss_sum", "loss_count",
           "saves_failed", "cpu", "steps", *REASONS)  # fmt: skip
AT = {name: position for position, name in enumerate(COLUMNS)}
ABSENT, STARTING, READY, RUNNING, HOLDING, FINISHED, STOPPED = range(7)
"""Phases of a client; one that is FINISHED has published its last model."""

_GO, _STOP_AT, _FINISH_AT, _SAVE_AT, _FINAL, _RELEASED = range(6)


class StatusTable:
    """n rows of clients, and the engine's orders."""

    def __init__(self, n: int) -> None:
        self.n = n
        memory = mmap.mmap(-1, 8 * (n * len(COLUMNS) + n + 8))
        table = np.frombuffer(memory, dtype=np.float64)
        self.rows = table[: n * len(COLUMNS)].reshape(n, len(COLUMNS))
        self.letters = table[n * len(COLUMNS) :][:n]  # how many the engine has sent to each client
        self._orders = table[n * len(COLUMNS) + n :]
        self._orders[[_STOP_AT, _FINISH_AT]] = math.inf
        self._orders[_SAVE_AT] = -1

    def column(self, name: str) -> list[float]:
        values: list[float] = self.rows[:, AT[name]].tolist()
        return values

    @staticmethod
    def at(name: str) -> int:
        """The position of a column."""
        return AT[name]

    def phase(self, i: int) -> int:
        return int(self.rows[i, AT["phase"]])

    @property
    def orders(self) -> npt.NDArray[np.float64]:
        """The engine's row, for an engine that has to carry it to clients elsewhere."""
        return self._orders

    # --- the engine's side ---------------------------------------------------------------------

    def go(self) -> None:
        """Everybody is ready: begin."""
        self._orders[_GO] = 1

    def stop_at(self, c: float) -> None:
        """Clients hold before step c (0: before their next), and then stop, to go on another day."""
        self._orders[_STOP_AT] = c

    def finish_at(self, c: float) -> None:
        """Clients hold before step c, and then finish."""
        self._orders[_FINISH_AT] = c

    def save_at(self, c: int) -> None:
        """Clients save their state before step c."""
        self._orders[_SAVE_AT] = c

    def make_final(self) -> None:
        """Those who hold do what they hold for."""
        self._orders[_FINAL] = 1

    def release(self) -> None:
        """Everybody has finished: processes may end."""
        self._orders[_RELEASED] = 1

    # --- a client's side -----------------------------------------------------------------------

    def enter(self, i: int, phase: int) -> None:
        self.rows[i, AT["phase"]] = phase

    def write(self, i: int, c: int, life: int, steps: int, cpu: float, tally: Tally) -> None:
        refused = [tally.refused.get(reason, 0) for reason in REASONS]
        self.rows[i, AT["compute"] :] = (
            tally.compute, tally.communication, tally.waiting, tally.loss_sum, tally.loss_count,
            tally.saves_failed, cpu, steps, *refused,
        )  # fmt: skip
        self.rows[i, AT["c"]], self.rows[i, AT["life"]] = c, life

    def order(self, c: int) -> Order:
        orders = self._orders
        if c >= orders[_STOP_AT]:
            return "stop"
        if c >= orders[_FINISH_AT]:
            return "finish"
        return "save" if c == orders[_SAVE_AT] else "go_on"

    @property
    def started(self) -> bool:
        return bool(self._orders[_GO])

    @property
    def final(self) -> bool:
        return bool(self._orders[_FINAL])

    @property
    def released(self) -> bool:
        return bool(self._orders[_RELEASED])
