"""Newest models: the newest wins, whole, in order, whatever the neighbours do."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from swiftfl.transports.base import Transport
from swiftfl.transports.conformance.participants import (
    Failed,
    Participants,
    Say,
    Task,
    full,
    newest,
    ring,
    until,
    value_of,
)
from swiftfl.vector import Vector

LARGE = 500_000  # doubles: 4 MB, many times what is copied in one go
SECONDS = 0.8


def newest_wins(crew: Participants) -> str:
    """x0 is there from the start, then always the last model that was published."""
    plan = crew.open(ring(2))
    writer, reader = plan.connect(0), plan.connect(1)
    try:
        if newest(reader, 0) != (0.0, 0):
            raise Failed("x0 is not there as version 0")
        for version in range(1, 101):
            writer.publish(full(crew, version), version)
            if version % 7 == 0:
                _expect(reader, version)
        _expect(reader, 100)
    finally:
        writer.close()
        reader.close()
    return "101 versions"


def _expect(reader: Transport, version: int) -> None:
    """The version arrives in a moment (a message may travel a little), and nothing newer instead."""
    until(lambda: newest(reader, 0) == (version, version), f"version {version}")


def never_torn(crew: Participants) -> str:
    """Three readers look at every element of large models while they are written at full speed."""
    crew.open([(1, 2, 3), (0,), (0,), (0,)], LARGE)
    crew.start(0, publish_for_ever(crew))
    reads = crew.results(lambda i: check_reads(), (1, 2, 3))
    fresh = sum(count for _, count in reads)
    if fresh < 3:
        raise Failed(f"only {fresh} models arrived")
    return f"{sum(count for count, _ in reads)} reads of 4 MB, {fresh} of them new"


def never_backwards(crew: Participants) -> str:
    """Small models at full speed: versions only grow, and each comes with its own model."""
    crew.open(ring(3), 8)
    crew.start(0, publish_for_ever(crew))
    reads = crew.results(lambda i: check_reads(), (1, 2))
    return f"{sum(count for count, _ in reads)} reads, {sum(fresh for _, fresh in reads)} of them new"


def publish_for_ever(crew: Participants) -> Task:
    def task(wire: Transport, say: Say) -> object:
        version, end = 0, time.monotonic() + 20
        while time.monotonic() < end:
            version += 1
            wire.publish(full(crew, version), version)
        return version

    return task


def check_reads() -> Task:
    """Read client 0 for a while; how often, and how often it was a new version."""

    def task(wire: Transport, say: Say) -> tuple[int, int]:
        last = reads = fresh = 0
        until(lambda: newest(wire, 0)[1] > 0, "the first model")
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            value, version = newest(wire, 0)
            if version < last:
                raise Failed(f"version {version} came after {last}")
            if value != version:
                raise Failed(f"version {version} came with the model of version {value:g}")
            reads, fresh, last = reads + 1, fresh + (version > last), version
        return reads, fresh

    return task


def hang_in_read() -> Task:
    def task(wire: Transport, say: Say) -> object:
        def hang(x: Vector, version: int) -> str:
            say(version)
            time.sleep(600)
            return "woke up"

        return wire.read(0, hang)

    return task


def stopped_peers(crew: Participants) -> str:
    """One neighbour stopped in mid-read, one in mid-publish: nobody else waits, all goes on."""
    return _wounded(crew, signal.SIGSTOP, times=4)


def killed_peers(crew: Participants) -> str:
    """Neighbours killed in mid-read and in mid-publish, again and again: nothing stays locked."""
    return _wounded(crew, signal.SIGKILL, times=12)


def _wounded(crew: Participants, number: int, times: int) -> str:
    """Client 0 publishes to hanging readers, and reads client 2, which is hit while it publishes."""
    crew.need_processes()
    crew.open([(1, 2), (0,), (0,)], 50_000)
    writer = None
    seen, slowest = crew.start(0, _use_wires(crew, 1)).hear()
    for attempt in range(times):
        if writer is None or number == signal.SIGKILL:
            reader, writer = crew.start(1, hang_in_read()), crew.start(2, _go_on_publishing(crew, seen))
            reader.hear()
            reader.signal(number)
        writer.hear()
        time.sleep(0.003 * attempt)
        writer.signal(number)
        seen, slow = crew.start(0, _use_wires(crew, 41 + 40 * attempt)).hear()
        slowest = max(slowest, slow)
        if number == signal.SIGSTOP:
            writer.signal(signal.SIGCONT)
    return f"{40 + 40 * times} publishes and reads, the slowest took {slowest * 1e3:.1f} ms"


def _go_on_publishing(crew: Participants, last: int) -> Task:
    """A client that was started again goes on after the last version that was seen of it."""

    def task(wire: Transport, say: Say) -> object:
        version = last
        while True:
            version += 1
            wire.publish(full(crew, version), version)
            if version % 50 == 0:
                say(version)

    return task


def _use_wires(crew: Participants, first: int) -> Task:
    def task(wire: Transport, say: Say) -> object:
        version, slowest = 0, 0.0
        for own in range(first, first + 40):
            began = time.perf_counter()
            wire.publish(full(crew, own), own)
            value, version = newest(wire, 2)
            slowest = max(slowest, time.perf_counter() - began)
            if value != version:
                raise Failed(f"version {version} came with the model of version {value:g}")
        if wire.read(0, lambda x, version: (value_of(x), version)) not in (None, (own, own)):
            raise Failed("the last publish did not become the newest model")
        return version, slowest

    return task


def bounded_memory(crew: Participants) -> str:
    """Hundreds of large models for a neighbour that never reads: the publisher does not grow."""
    crew.open(ring(2), LARGE // 4)
    grown = crew.start(0, _publish_and_weigh(crew)).hear()
    if grown > 16.0:
        raise Failed(f"grew by {grown:.0f} MB in 300 publishes of 1 MB")
    return f"grew by {grown:.1f} MB in 300 publishes of 1 MB"


def _publish_and_weigh(crew: Participants) -> Task:
    def task(wire: Transport, say: Say) -> float:
        before = 0.0
        for version in range(1, 331):
            wire.publish(full(crew, version), version)
            if version == 30:
                before = _resident()
        return _resident() - before

    return task


def _resident() -> float:
    """This process's memory in MB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


CHECKS = (newest_wins, never_torn, never_backwards, stopped_peers, killed_peers, bounded_memory)
