"""A shared table, in which an engine and its clients on one machine report to each other without waiting.

Each client writes its own row and nobody else's; the engine writes one row of orders. All entries are
aligned 64-bit numbers, so that none is ever seen half written. The table is memory without a name,
which could be left behind: forked processes inherit it, fresh ones are handed its descriptor.
"""

from __future__ import annotations

import math
import mmap
import os
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from swiftfl.engines.live.inbox import REASONS, Reason
from swiftfl.engines.traffic import Traffic

Order = Literal["go_on", "save", "pause", "stop", "finish", "leave"]
HOLDS: tuple[Order, ...] = ("pause", "stop", "finish")
"""Orders for which a client holds before its step, until they are final or withdrawn."""
TOTALS = ("steps", "compute", "communication", "waiting", "cpu", "loss_sum", "loss_count", "saves_failed",
          "discarded", "discarding", "loss", "age_sum", "age_count", "renewals")  # fmt: skip
TRAFFIC = ("rounds", "messages", "bytes")
SELECTION = ("selected", "ccs_messages", "ccs_seconds", "ccs_digest")
COLUMNS = ("c", "incarnation", "phase", "waits", "heard", *SELECTION, *TOTALS, *TRAFFIC, *REASONS)
AT = {name: position for position, name in enumerate(COLUMNS)}
_FIRST_TOTAL, _C, _PHASE, _WAITS = AT["steps"], AT["c"], AT["phase"], AT["waits"]
_SELECTED = AT["selected"]
ABSENT, STARTING, READY, RUNNING, HOLDING, FINISHED, STOPPED = range(7)
"""Phases of a client; one that is FINISHED has published its last model."""

_GO, _STOP_AT, _FINISH_AT, _SAVE_AT, _FINAL, _RELEASED, _PAUSE_AT, _ORIGIN = range(8)


@dataclass
class Tally:
    """What a client counts: totals over all its incarnations, seconds where not said otherwise."""

    steps: int = 0
    compute: float = 0.0
    communication: float = 0.0
    waiting: float = 0.0
    cpu: float = 0.0
    loss_sum: float = 0.0
    loss_count: int = 0
    saves_failed: int = 0
    discarded: int = 0  # steps whose result was not finite
    discarding: int = 0  # 1 if the last step was one of them
    loss: float = math.nan  # of the newest batch
    age_sum: float = 0.0  # of neighbours' models when they were averaged, in steps of theirs,
    age_count: int = 0  # and of how many
    renewals: int = 0  # how often the client has taken new weights
    traffic: Traffic = field(default_factory=Traffic)
    refused: dict[Reason, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))


class StatusTable:
    """n rows of clients, and the engine's orders."""

    def __init__(self, n: int, memory: mmap.mmap | None = None, fresh: bool = True) -> None:
        """In memory that forked processes inherit, or in `memory`, which is `fresh` if nobody uses it yet."""
        self.n = n
        memory = memory or mmap.mmap(-1, self.bytes_of(n))
        table = np.frombuffer(memory, dtype=np.float64)
        self.rows = table[: n * len(COLUMNS)].reshape(n, len(COLUMNS))
        self.messages = table[n * len(COLUMNS) :][:n]  # how many the engine has sent to each client
        self.leaves_at = table[n * len(COLUMNS) + n :][:n]  # the step before which each client leaves
        self._orders = table[n * len(COLUMNS) + 2 * n :]
        if fresh:
            self.leaves_at[:] = math.inf
            self._orders[[_STOP_AT, _FINISH_AT, _PAUSE_AT]] = math.inf
            self._orders[_SAVE_AT] = -1

    @staticmethod
    def bytes_of(n: int) -> int:
        """How much memory the table of n clients needs."""
        return 8 * (n * len(COLUMNS) + 2 * n + 8)

    @classmethod
    def in_file(cls, n: int) -> tuple[StatusTable, int]:
        """A new table, and the descriptor of its memory, with which `opened` finds it in another process."""
        file = os.memfd_create("swiftfl-status", os.MFD_CLOEXEC)
        os.ftruncate(file, cls.bytes_of(n))
        return cls(n, mmap.mmap(file, cls.bytes_of(n))), file

    @classmethod
    def opened(cls, n: int, file: int) -> StatusTable:
        return cls(n, mmap.mmap(file, cls.bytes_of(n)), fresh=False)

    def column(self, name: str) -> list[float]:
        values: list[float] = self.rows[:, AT[name]].tolist()
        return values

    def value(self, i: int, name: str) -> float:
        return float(self.rows[i, AT[name]])

    def c(self, i: int) -> float:
        """The step that client i is about to take, or is taking."""
        return float(self.rows[i, _C])

    def phase(self, i: int) -> int:
        return int(self.rows[i, _PHASE])

    def waits(self, i: int) -> bool:
        """Whether client i waits for others in its step."""
        return bool(self.rows[i, _WAITS])

    def seconds(self) -> dict[str, list[float]]:
        """The three parts of each client's time."""
        return {name: self.column(name) for name in ("compute", "communication", "waiting")}

    @property
    def orders(self) -> npt.NDArray[np.float64]:
        """The engine's row, for an engine that has to carry it to clients elsewhere."""
        return self._orders

    # --- the engine's side ---------------------------------------------------------------------

    def go(self, origin: float = 0.0) -> None:
        """Everybody is ready: begin. The run's clock showed zero at `origin`, by this machine's clock."""
        self._orders[_ORIGIN] = origin
        self._orders[_GO] = 1

    def stop_at(self, c: float) -> None:
        """Clients hold before step c (0: before their next), and then stop, to go on another day."""
        self._orders[_STOP_AT] = c

    def finish_at(self, c: float) -> None:
        """Clients hold before step c, and then finish."""
        self._orders[_FINISH_AT] = c

    def pause_at(self, c: float) -> None:
        """Clients hold before step c, until this is withdrawn (inf)."""
        self._orders[_PAUSE_AT] = c

    def place(self, i: int, c: int) -> None:
        """Where client i will start."""
        self.rows[i, _C] = c

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
        self.rows[i, _WAITS] = 0
        self.rows[i, _PHASE] = phase

    def set_waits(self, i: int, waits: bool) -> None:
        self.rows[i, _WAITS] = waits

    def selected(self, i: int) -> int:
        """The last epoch of CCS that client i has run to its end; -1 before the first."""
        return int(self.rows[i, _SELECTED]) - 1

    def write_selection(self, i: int, epoch: int, messages: int, seconds: float, digest: int) -> None:
        """Client i has its weights of this epoch; with messages in all, and seconds of its longest run."""
        self.rows[i, _SELECTED + 1 : _SELECTED + 4] = messages, seconds, digest
        self.rows[i, _SELECTED] = epoch + 1

    def write(self, i: int, c: int, incarnation: int, tally: Tally) -> None:
        self.rows[i, _FIRST_TOTAL:] = (
            tally.steps, tally.compute, tally.communication, tally.waiting, tally.cpu, tally.loss_sum,
            tally.loss_count, tally.saves_failed, tally.discarded, tally.discarding,
            tally.loss, tally.age_sum, tally.age_count, tally.renewals,
            tally.traffic.rounds, tally.traffic.messages, tally.traffic.bytes, *tally.refused.values(),
        )  # fmt: skip
        self.rows[i, _C], self.rows[i, AT["incarnation"]] = c, incarnation

    def tally(self, i: int) -> Tally:
        """What client i has counted so far: its next incarnation counts on."""
        row = dict(zip(COLUMNS, self.rows[i].tolist(), strict=True))
        whole = {"steps", "loss_count", "saves_failed", "discarded", "discarding", "age_count", "renewals"}
        totals = {name: int(row[name]) if name in whole else row[name] for name in TOTALS}
        traffic = Traffic(*(int(row[name]) for name in TRAFFIC))
        return Tally(**totals, traffic=traffic, refused={reason: int(row[reason]) for reason in REASONS})

    @property
    def origin(self) -> float:
        return float(self._orders[_ORIGIN])

    def order(self, c: int) -> Order:
        orders = self._orders
        if c >= orders[_STOP_AT]:
            return "stop"
        if c >= orders[_FINISH_AT]:
            return "finish"
        if c >= orders[_PAUSE_AT]:
            return "pause"
        return "save" if c == orders[_SAVE_AT] else "go_on"

    def leaves(self, i: int, c: int) -> bool:
        """Whether client i is to leave before step c."""
        return bool(c >= self.leaves_at[i])

    @property
    def started(self) -> bool:
        return bool(self._orders[_GO])

    @property
    def final(self) -> bool:
        return bool(self._orders[_FINAL])

    @property
    def stopping(self) -> bool:
        """Whether everybody stops now, to go on another day."""
        return self.final and bool(self._orders[_STOP_AT] < math.inf)

    @property
    def released(self) -> bool:
        return bool(self._orders[_RELEASED])
