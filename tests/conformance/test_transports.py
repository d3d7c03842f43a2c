"""Every transport passes the battery, and the battery catches every kind of broken one."""

from __future__ import annotations

import json
import os
import re
import time
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from swiftfl.cli.main import run_command
from swiftfl.transports import conformance
from swiftfl.transports.base import SmallMessage, TransportEntry
from swiftfl.transports.codec import Identity, MakeCodec
from swiftfl.transports.conformance import participants
from swiftfl.transports.conformance.battery import CHECKS, CheckReport, battery
from swiftfl.transports.memory import MemoryPlan, MemoryTransport
from swiftfl.transports.registry import TRANSPORTS
from swiftfl.transports.shared_memory.holds import FENCES_WORK
from swiftfl.transports.shared_memory.transport import SharedMemory, SharedMemoryTransport
from swiftfl.vector import Vector

BY_NAME = {check.__name__: check for check in CHECKS}
IN_THREADS_ONLY = {"stopped_peers", "killed_peers", "small_messages_never_wait", "cells_survive"}


@pytest.mark.parametrize("check", BY_NAME)
@pytest.mark.parametrize("name", ["memory", "shared_memory"])
def test_transports_pass(name: str, check: str) -> None:
    report, left = battery(TRANSPORTS[name], (BY_NAME[check],))
    skipped = name == "memory" and check in IN_THREADS_ONLY
    assert report.passed is (None if skipped else True), report.detail
    assert left.passed, left.detail


# --- broken ones: what the battery must catch --------------------------------------------------


class Stale(MemoryTransport):
    """Reads the model before the newest."""

    def publish(self, x: Vector, version: int) -> None:
        super().publish(getattr(self, "held", x), version)
        self.held = x.copy()


class Backwards(MemoryTransport):
    """Delivers an older model now and then, as a queue does after a pause."""

    def read(self, neighbour: int, use: Callable[[Vector, int], Any]) -> Any:
        now = self.plan.newest[neighbour]
        self.turn = getattr(self, "turn", 0) + 1
        if self.turn % 50 == 0:
            now = getattr(self, "kept", now)
        elif self.turn % 50 == 1:
            self.kept = now
        return use(*now[:2])


class InPlace(MemoryTransport):
    """Writes into the vector that others may be reading."""

    def publish(self, x: Vector, version: int) -> None:
        shared = self.plan.newest[self.i][0] if version > 1 else x.copy()
        half = x.size // 2
        shared[:half] = x[:half]
        time.sleep(0.001)
        shared[half:] = x[half:]
        self.plan.newest[self.i] = (shared, version, time.monotonic())


class Patient(MemoryTransport):
    """Waits for something new before it reads."""

    def read(self, neighbour: int, use: Callable[[Vector, int], Any]) -> Any:
        end = time.monotonic() + 3
        while self.plan.newest[neighbour][1] == 0 and time.monotonic() < end:
            time.sleep(0.01)
        assert self.plan.newest[neighbour][1] > 0, "blocked"
        return super().read(neighbour, use)


class Hoarding(MemoryTransport):
    """Keeps everything that was ever published."""

    def publish(self, x: Vector, version: int) -> None:
        self.queue = [*getattr(self, "queue", []), x.copy()]
        super().publish(x, version)


class AnyRound(MemoryTransport):
    """Takes whatever was offered last for the round that was asked for."""

    def collect(self, neighbour: int, round: int, use: Callable[[Vector], Any]) -> Any:
        super().collect(neighbour, round, lambda x: None)
        theirs = self.plan.offers[neighbour]
        return use(theirs[max(theirs)][0])


class Unlocked(MemoryTransport):
    """Averages cells without a lock."""

    def average_with(self, neighbour: int) -> Vector:
        mean = 0.5 * (self.plan.cells[self.i] + self.plan.cells[neighbour])
        time.sleep(0.0005)
        self.plan.cells[self.i] = self.plan.cells[neighbour] = mean
        return mean


class OneForAll(MemoryTransport):
    """Tells everybody what is meant for one."""

    def tell(self, neighbour: int, message: SmallMessage) -> None:
        for k in self.neighbours:
            super().tell(k, message)


class OneKind(MemoryTransport):
    """Keeps only the newest message, whatever its kind."""

    def tell(self, neighbour: int, message: SmallMessage) -> None:
        self.plan.told[self.i, neighbour].clear()
        super().tell(neighbour, message)


class WordByWord(MemoryTransport):
    """Writes a message that others may be reading."""

    def tell(self, neighbour: int, message: SmallMessage) -> None:
        earlier = self.plan.told[self.i, neighbour].get(message.kind, message)
        super().tell(neighbour, message._replace(second=earlier.second))
        time.sleep(0.001)
        super().tell(neighbour, message)


class Uncounted(MemoryTransport):
    """Tells nobody that it was averaged with."""

    answers = 0


class Unguarded(MemoryTransport):
    """Waits for nobody at a barrier."""

    def barrier(self, round: int) -> None:
        pass


class Deaf(MemoryPlan):
    """Tells nobody about losses."""

    def mark_gone(self, i: int) -> None:
        pass


class Unstoppable(MemoryPlan):
    def stop(self) -> None:
        pass


class Littering(MemoryPlan):
    """Leaves a descriptor open."""

    def __init__(
        self,
        neighbours: Sequence[Sequence[int]],
        x0: Vector,
        codec: MakeCodec = Identity,
        in_rounds: bool = False,
    ) -> None:
        super().__init__(neighbours, x0, codec)
        self.left = os.memfd_create("litter")


def with_ends(end: type[MemoryTransport]) -> type[MemoryPlan]:
    class Broken(MemoryPlan):
        def connect(self, i: int) -> Any:
            return end(self, i)

    return Broken


BROKEN: list[tuple[type[MemoryPlan], str, str]] = [
    (with_ends(Stale), "newest_wins", "version"),
    (with_ends(Backwards), "never_backwards", "came after"),
    (with_ends(InPlace), "never_torn", "torn"),
    (with_ends(Patient), "newest_wins", "blocked"),
    (with_ends(Hoarding), "bounded_memory", "grew"),
    (with_ends(AnyRound), "rounds_with_some", "from client"),
    (with_ends(Unlocked), "cells_are_atomic", "sum"),
    (with_ends(OneForAll), "small_messages_arrive", "last epoch"),
    (with_ends(OneKind), "small_messages_arrive", "last epoch"),
    (with_ends(WordByWord), "small_messages_whole", "torn"),
    (with_ends(Uncounted), "averages_are_counted", "not within"),
    (with_ends(Unguarded), "barriers", "before everybody had come"),
    (Deaf, "barriers", "blocked"),
    (Deaf, "loss_is_noticed", "blocked"),
    (Unstoppable, "stop_wakes", "blocked"),
]


@pytest.mark.parametrize(("broken", "check", "complaint"), BROKEN, ids=lambda value: str(value)[-30:])
def test_the_battery_catches(
    broken: type[MemoryPlan], check: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It may wait in vain, which need not take long; where the machine is busy, that may be seen first.
    limits = {"blocked": 1.0, "version": 1.0, "last epoch": 1.0, "not within": 1.0, "from client": 3.0}
    monkeypatch.setattr(participants, "LIMIT", limits.get(complaint, 10.0))
    report = run_one(TransportEntry("broken", broken, processes=False), check)
    assert report.passed is False
    assert complaint in report.detail or "blocked" in report.detail


def run_one(entry: TransportEntry, check: str) -> CheckReport:
    return next(iter(battery(entry, (BY_NAME[check],))))


def test_the_battery_finds_litter() -> None:
    plans = []

    def create(*arguments: Any, **options: Any) -> Littering:
        plans.append(Littering(*arguments, **options))
        return plans[-1]

    *_, left = battery(TransportEntry("littering", create, processes=False), (BY_NAME["newest_wins"],))
    assert left.passed is False
    assert "litter" in left.detail
    for plan in plans:
        os.close(plan.left)


class OneSlot(SharedMemoryTransport):
    """The negative control: shared memory with one slot and no check."""

    def publish(self, x: Vector, version: int) -> None:
        self.own.places[1][:] = x
        self.own.values[self.own.word] = version * len(self.own.places) + 1

    def read(self, neighbour: int, use: Callable[[Vector, int], Any]) -> Any:
        slots = self.view.slots[neighbour]
        return use(slots.places[1], slots.values[slots.word] // len(slots.places))


class OneLock(SharedMemoryTransport):
    """Waits for its readers, as one slot with a proper lock must."""

    def publish(self, x: Vector, version: int) -> None:
        slots = self.own
        held = [self.layout.holds(reader, self.i) for reader in (None, *self.neighbours)]
        while any(slots.values[word] for word in held):
            time.sleep(0.001)
        slots.places[1][:] = x
        slots.values[slots.word] = version * len(slots.places) + 1


class NoSequence(SharedMemoryTransport):
    """Writes the words of a message one by one, and says nothing of it."""

    def tell(self, neighbour: int, message: SmallMessage) -> None:
        at, words = self.layout.told(self.i, neighbour, message.kind), self.words
        words.values[at : at + 2] = memoryview(array("q", (2, message.epoch)))
        time.sleep(0.0002)
        words.numbers[at + 2], words.numbers[at + 3] = message.first, message.second


@pytest.mark.parametrize(
    ("end", "check", "complaint"),
    [
        (OneSlot, "never_torn", "torn"),
        (OneLock, "stopped_peers", "blocked|no model"),
        (NoSequence, "small_messages_whole", "torn"),
    ],
)
@pytest.mark.skipif(not FENCES_WORK, reason="here slots are held by locks of the kernel")
def test_the_battery_catches_processes(
    end: type[SharedMemoryTransport], check: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(participants, "LIMIT", 4.0)
    monkeypatch.setattr(SharedMemory, "connect", lambda plan, i: end(plan, i))
    # Whether two get into each other's way is a matter of luck, where the machine is busy.
    reports = (run_one(TRANSPORTS["shared_memory"], check) for _ in range(5))
    assert any(report.passed is False and re.search(complaint, report.detail) for report in reports)


# --- the command -------------------------------------------------------------------------------


def test_the_command_prints_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    reports = [
        CheckReport("newest_wins", True, "101 versions", 0.1),
        CheckReport("never_torn", None, "", 0.0),
    ]
    monkeypatch.setattr(conformance, "battery", lambda entry: iter(reports))
    assert run_command(["check-transport", "memory", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["passed"] is True
    assert answer["checks"][0]["name"] == "newest_wins"
    reports.append(CheckReport("nothing_left", False, "left: a mess", 0.1))
    assert run_command(["check-transport", "memory"]) == 1
    assert "FAILED" in capsys.readouterr().out


def test_an_unknown_transport_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["check-transport", "pigeons"]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert "pigeons" in said[0]
    assert "shared_memory" in said[0]


def test_values_are_looked_at_whole() -> None:
    torn = np.ones(1000)
    torn[617] = 2.0
    with pytest.raises(participants.Failed, match="torn"):
        participants.value_of(torn)
