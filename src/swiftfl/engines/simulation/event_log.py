"""What happened in a run besides training, as rows of events.jsonl."""

from __future__ import annotations

import logging

from swiftfl.engines.dynamics import CHANGES
from swiftfl.engines.engine import WARNING
from swiftfl.engines.saved import Saved, Tree

_log = logging.getLogger(__name__)

EVENTS = (*CHANGES, WARNING)
"""The events that a simulated engine reports."""


class EventLog:
    """Rows that nobody has taken yet, and how many were taken: those after a checkpoint happen again."""

    def __init__(self) -> None:
        self.rows: list[Tree] = []
        self.taken = 0

    def note(self, event: str, iteration: int, time: float, **more: object) -> None:
        self.rows.append({"event": event, "iteration": iteration, "time": time, **more})
        _log.debug("%s", self.rows[-1])

    def take(self) -> list[Tree]:
        rows, self.rows = self.rows, []
        self.taken += len(rows)
        return rows

    def state(self) -> Tree:
        return {"rows": list(self.rows), "taken": self.taken}

    def restore(self, saved: Saved) -> None:
        self.taken = saved["taken"].integer()
        self.rows = []
        for row in saved["rows"].items():
            event, iteration, time = row["event"].text(), row["iteration"].integer(), row["time"].number(0.0)
            if event not in EVENTS:
                row["event"].fail(f"is {event!r}, which is no event of an engine")
            known = {"event": event, "iteration": iteration, "time": time}
            self.rows.append({**{key: item.value for key, item in row.entries().items()}, **known})
