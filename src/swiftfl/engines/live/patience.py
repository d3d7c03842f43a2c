"""How long a live run waits for clients that make no progress, and which ones it then goes on without."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Protocol

from swiftfl.engines.live.options import LiveOptions
from swiftfl.engines.live.status import FINISHED, HOLDING, STOPPED, StatusTable
from swiftfl.engines.live.watchdog import Watchdog


class Processes(Protocol):
    """What can be asked of an engine about the processes of its clients."""

    def is_stopped(self, i: int) -> bool:
        """Whether the process of client i is stopped from outside, or gives no sign of life."""

    def kill(self, i: int) -> None:
        """End client i, which does not answer; its loss is reported when it has ended."""


class Patience:
    """Who is known to be late, since when all are asked to stop, and who was given up."""

    def __init__(
        self,
        status: StatusTable,
        options: LiveOptions,
        processes: Processes,
        warn: Callable[[str, int], None],
    ) -> None:
        self.status, self.options, self.processes, self.warn = status, options, processes, warn
        self.watchdog = Watchdog(status)
        self.given_up: dict[int, str] = {}  # who was ended by us, and why
        self.cut_off = False  # whether some did not stop in time
        self._stop_since: float | None = None
        self._reported: set[int] = set()  # who is known to be stalled

    def give_up(self, i: int, reason: str) -> None:
        """End a client for good."""
        self.given_up[i] = reason
        self.processes.kill(i)

    def wait_for_stop(self, phases: Mapping[int, int]) -> None:
        """All were asked to stop and save; whoever is blocked does not keep the others from it."""
        now, patience = time.perf_counter(), self.options.patience
        if self._stop_since is None:
            self._stop_since = now
        late = [
            i for i, phase in phases.items() if phase not in (STOPPED, FINISHED) and i not in self.given_up
        ]
        if late and now - self._stop_since >= patience:
            self._stop_since = now  # those who wait for the blocked ones get as long again
            self.cut_off = True
            for i in self._blocked(phases, late):
                self.give_up(i, f"did not stop within {patience:g} s")

    def watch(self, phases: Mapping[int, int], stopping: bool) -> None:
        """Report who makes no progress; when everybody else has finished, do not wait for them."""
        seconds, watchdog = self.options.stall_seconds, self.watchdog
        stalled = watchdog.stalled(phases, seconds)
        behind = [i for i, phase in phases.items() if phase != FINISHED]
        if not stalled and behind and all(watchdog.is_late(i, seconds) for i in behind):
            stalled = self._blocked(phases, behind)  # everybody waits: whom for?
        for i in sorted(set(stalled) - self._reported):
            self.warn(f"client {i} has made no progress for {watchdog.idle(i):.0f} s", i)
        self._reported = set(stalled)
        patience = self.options.patience
        if stopping or len(behind) == len(phases):
            return
        if all(watchdog.is_late(i, patience) for i in behind):
            for i in watchdog.stalled(phases, patience) or self._blocked(phases, behind):
                if i not in self.given_up:
                    self.give_up(i, f"no progress for {watchdog.idle(i):.0f} s while all others finished")

    def _blocked(self, phases: Mapping[int, int], late: list[int]) -> list[int]:
        """Of those who are late, the ones that the others wait for."""
        moving = [i for i in late if phases[i] != HOLDING] or late
        if busy := [i for i in moving if not self.status.waits(i)]:
            return busy
        if stopped := [i for i in moving if self.processes.is_stopped(i)]:
            return stopped
        behind = min(self.status.c(i) for i in moving)  # everybody waits, in the end for the last
        return [i for i in moving if self.status.c(i) == behind]
