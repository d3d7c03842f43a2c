"""The battery where clients cannot be forked: a program that every rank runs (`swiftfl check-transport mpi`).

Each rank runs every check from the first line to the last, in step: a client's task is done by its own
rank, and what a client says is told to all ranks, so that they all go the same way. The first rank prints
one JSON object per check.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Protocol

import numpy as np

from swiftfl.transports.base import Observer, Transport, TransportEntry
from swiftfl.transports.codec import MakeCodec
from swiftfl.transports.conformance import participants, wait_free
from swiftfl.transports.conformance.participants import (
    Failed,
    Participants,
    Skipped,
    Task,
    full,
    newest,
    ring,
    until,
)
from swiftfl.transports.messages.transport import MessageTransport
from swiftfl.transports.mpi import world
from swiftfl.vector import Vector

RANKS = 4
AGAIN = "its ranks keep step, and none is started again (tests of lost ones: tests/live, tests/federation)"


class Ranks(Protocol):
    """The processes that run the checks together."""

    @property
    def rank(self) -> int: ...

    def part(self, n: int) -> RanksPart | None:
        """The first n of them, for those; all call it together."""

    def tell(self, value: object, who: int = 0) -> Any:
        """That rank's value (anything JSON can hold), for everybody; all call it together."""

    def abort(self, code: int) -> None:
        """End every rank at once."""


class RanksPart(Protocol):
    """Those who take part in a check."""

    def connect(
        self, neighbours: Sequence[Sequence[int]], x0: Vector, codec: MakeCodec
    ) -> MessageTransport: ...


class Over(Exception):  # noqa: N818
    """The experiment has ended, and whoever still works in it should too."""


class RankPlan:
    """What the supervisor does in a check, every rank does for its own end."""

    def __init__(
        self, ranks: Ranks, neighbours: Sequence[Sequence[int]], x0: Vector, codec: MakeCodec
    ) -> None:
        self.ranks = ranks
        part = ranks.part(len(neighbours))
        self.end: MessageTransport | None = None if part is None else part.connect(neighbours, x0, codec)
        self.models_in_memory = 0

    def connect(self, i: int) -> Transport:
        return Remote(self, i)  # type: ignore[return-value]

    def observe(self) -> Observer:
        raise Skipped("models of ranks are seen by asking for them (engines/live/mpi)")

    def rejoin(self, i: int, from_round: int = 0) -> None:
        raise Skipped(AGAIN)

    def mark_gone(self, i: int) -> None:
        if self.end is not None:
            self.end.mark_gone(i)

    def stop(self) -> None:
        if self.end is not None:
            self.end.stop()

    def close(self) -> None:
        if self.end is not None:
            self.end.flush(1.0)
        self.ranks.tell(None)
        if self.end is not None:
            self.end.progress.failure = Over()
            self.end.close()


class Remote:
    """Another rank's cell, looked at by all together."""

    def __init__(self, plan: RankPlan, i: int) -> None:
        self.plan, self.i = plan, i

    def load(self) -> Vector:
        own = self.plan.ranks.rank == self.i and self.plan.end is not None
        x = self.plan.end.load().tolist() if own and self.plan.end is not None else None
        return np.array(self.plan.ranks.tell(x, self.i))

    def close(self) -> None:
        """Nothing was opened."""


class RankTask:
    """A task of one rank, heard by all."""

    def __init__(self, plan: RankPlan, i: int, task: Task) -> None:
        self.plan, self.i = plan, i
        self.said: queue.Queue[dict[str, Any]] = queue.Queue()
        if plan.ranks.rank == i:
            threading.Thread(target=self._work, args=(task,), daemon=True).start()

    def _work(self, task: Task) -> None:
        assert self.plan.end is not None
        try:
            result = task(self.plan.end, lambda value: self.said.put({"value": value}))
            self.said.put({"value": result})
        except Exception as error:
            self.said.put({"error": f"{type(error).__name__}: {error}"})

    def answer(self) -> Any:
        message: object = None
        if self.plan.ranks.rank == self.i:
            try:
                message = self.said.get(timeout=participants.LIMIT)
            except queue.Empty:
                message = {"error": f"blocked for {participants.LIMIT:g} s"}
        heard = self.plan.ranks.tell(message, self.i)
        if "error" in heard:
            raise Failed(f"client {self.i}: {heard['error']}")
        return heard["value"]

    def signal(self, number: int) -> None:
        raise Skipped("a rank that is stopped cannot keep step with the others")

    def end(self) -> None:
        """Its thread ends with the transport."""


class RankParticipants(Participants):
    """Clients that are ranks."""

    def __init__(self, ranks: Ranks) -> None:
        super().__init__(TransportEntry("ranks", self._make))
        self.ranks = ranks

    def _make(
        self, neighbours: Sequence[Sequence[int]], x0: Vector, codec: MakeCodec, in_rounds: bool
    ) -> RankPlan:
        return RankPlan(self.ranks, neighbours, x0, codec)

    def need_processes(self) -> None:
        raise Skipped(AGAIN)

    def start(self, i: int, task: Task) -> Any:
        assert isinstance(self.plan, RankPlan)
        return RankTask(self.plan, i, task)


# --- checks that ranks do in their own way --------------------------------------------------------


def newest_wins(group: Participants) -> str:
    """x0 is there from the start, then always the last model that was published."""
    group.open(ring(2))
    if group.start(1, lambda transport, report: newest(transport, 0)).answer() != [0.0, 0]:
        raise Failed("x0 is not there as version 0")
    for last in (7, 50, 100):
        group.start(0, _publish_until(group, last)).answer()
        group.start(1, _wait_for(last)).answer()
    return "101 versions"


def _publish_until(group: Participants, last: int) -> Task:
    def task(transport: Transport, report: participants.Report) -> int:
        first = int(newest(transport, 0)[1]) + 1
        for version in range(first, last + 1):
            transport.publish(full(group, version), version)
        return last

    return task


def _wait_for(last: int) -> Task:
    def task(transport: Transport, report: participants.Report) -> int:
        until(lambda: newest(transport, 0) == (last, last), f"version {last}")
        return last

    return task


def stopped_peers(group: Participants) -> str:
    """The first rank stops the others in mid-publish and uses its transports; then they go on."""
    assert isinstance(group, RankParticipants)
    group.open([(1, 2), (0,), (0,)], 250_000)
    pids = [group.ranks.tell(os.getpid(), i) for i in range(RANKS)]
    for i in (1, 2):
        group.start(i, wait_free.publish_for_ever(group))
    user = group.start(0, _use_while_stopped(group, pids[1:3]))
    slowest, grown = user.answer()
    if grown > 16.0:
        raise Failed(f"grew by {grown:.0f} MB while its neighbours were stopped")
    return f"300 publishes and reads, the slowest took {slowest * 1e3:.1f} ms; grew by {grown:.1f} MB"


def _use_while_stopped(group: Participants, pids: list[int]) -> Task:
    def task(transport: Transport, report: participants.Report) -> tuple[float, float]:
        until(lambda: min(newest(transport, k)[1] for k in (1, 2)) > 0, "the first models")
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            return _use(group, transport)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    return task


def _use(group: Participants, transport: Transport) -> tuple[float, float]:
    slowest = before = 0.0
    for version in range(1, 301):
        x = full(group, version)
        began = time.perf_counter()
        transport.publish(x, version)
        if any(value != number for value, number in (newest(transport, 1), newest(transport, 2))):
            raise Failed("a version came with another model")
        slowest = max(slowest, time.perf_counter() - began)
        if version == 30:
            before = wait_free._resident()
    return slowest, wait_free._resident() - before


OWN: dict[str, Callable[[Participants], str]] = {"newest_wins": newest_wins, "stopped_peers": stopped_peers}


def main(names: Sequence[str], ranks: Ranks) -> None:
    from swiftfl.transports.conformance.battery import CHECKS, examine

    for check in CHECKS:
        if check.__name__ in names:
            report = examine(RankParticipants(ranks), OWN.get(check.__name__, check))
            if ranks.rank == 0:
                print(json.dumps(asdict(report)), flush=True)
    ranks.tell(None)
    if ranks.rank == 0:
        sys.stdout.flush()
        ranks.abort(0)  # some checks leave messages that nobody will ever take
    time.sleep(60)


if __name__ == "__main__":
    main(sys.argv[1:], world())
