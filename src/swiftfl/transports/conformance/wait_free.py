"""Newest models: the newest wins, whole, in order, whatever the neighbours do."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from swiftfl.transports.base import Transport
from swiftfl.transports.codec import Bytes
from swiftfl.transports.conformance.participants import (
    ENOUGH,
    MORE_SECONDS,
    Failed,
    Participants,
    Report,
    Task,
    full,
    newest,
    ring,
    until,
    value_of,
)
from swiftfl.vector import Memory, Vector

LARGE = 500_000  # doubles: 4 MB, many times what is copied in one go
SECONDS = 0.8
LONG_AGO = 600.0  # seconds: no check takes so long


def newest_wins(group: Participants) -> str:
    """x0 is there from the start, then always the last model that was published."""
    plan = group.open(ring(2))
    writer, reader = plan.connect(0), plan.connect(1)
    try:
        if newest(reader, 0) != (0.0, 0):
            raise Failed("x0 is not there as version 0")
        for version in range(1, 101):
            writer.publish(full(group, version), version)
            if version % 7 == 0:
                _expect(reader, version)
        _expect(reader, 100)
        since = reader.since_published(0)
        if since is not None and not 0 <= since < LONG_AGO:
            raise Failed(f"what was published just now is said to be {since:.3g} seconds old")
    finally:
        writer.close()
        reader.close()
    return "101 versions"


def _expect(reader: Transport, version: int) -> None:
    """The version arrives in a moment (a message may travel a little), and nothing newer instead."""
    until(lambda: newest(reader, 0) == (version, version), f"version {version}")


def never_torn(group: Participants) -> str:
    """Three readers look at every element of large models while they are written at full speed."""
    group.open([(1, 2, 3), (0,), (0,), (0,)], LARGE)
    group.start(0, publish_for_ever(group))
    reads = group.results(lambda i: check_reads(), (1, 2, 3))
    fresh = sum(count for _, count in reads)
    if fresh < ENOUGH:
        raise Failed(f"only {fresh} models arrived")
    return f"{sum(count for count, _ in reads)} reads of 4 MB, {fresh} of them new"


def never_backwards(group: Participants) -> str:
    """Small models at full speed: versions only grow, and each comes with its own model."""
    group.open(ring(3), 8)
    group.start(0, publish_for_ever(group))
    reads = group.results(lambda i: check_reads(), (1, 2))
    return f"{sum(count for count, _ in reads)} reads, {sum(fresh for _, fresh in reads)} of them new"


def publish_for_ever(group: Participants) -> Task:
    def task(transport: Transport, report: Report) -> object:
        version, end = 0, time.monotonic() + 20
        while time.monotonic() < end:
            version += 1
            transport.publish(full(group, version), version)
        return version

    return task


def check_reads() -> Task:
    """Read client 0 for a while; how often, and how often it was a new version."""

    def task(transport: Transport, report: Report) -> tuple[int, int]:
        last = reads = fresh = 0
        until(lambda: newest(transport, 0)[1] > 0, "the first model")
        end = time.monotonic() + SECONDS
        while (now := time.monotonic()) < end or (fresh < ENOUGH and now < end + MORE_SECONDS):
            value, version = newest(transport, 0)
            if version < last:
                raise Failed(f"version {version} came after {last}")
            if value != version:
                raise Failed(f"version {version} came with the model of version {value:g}")
            reads, fresh, last = reads + 1, fresh + (version > last), version
        return reads, fresh

    return task


def hang_in_read() -> Task:
    def task(transport: Transport, report: Report) -> object:
        def hang(x: Vector, version: int) -> str:
            report(version)
            time.sleep(600)
            return "woke up"

        return transport.read(0, hang)

    return task


def stopped_peers(group: Participants) -> str:
    """One neighbour stopped in mid-read, one in mid-publish: nobody else waits, all goes on."""
    return _wounded(group, signal.SIGSTOP, times=4)


def killed_peers(group: Participants) -> str:
    """Neighbours killed in mid-read and in mid-publish, again and again: nothing stays locked."""
    return _wounded(group, signal.SIGKILL, times=12)


def _wounded(group: Participants, number: int, times: int) -> str:
    """Client 0 publishes to hanging readers, and reads client 2, which is hit while it publishes."""
    group.need_processes()
    group.open([(1, 2), (0,), (0,)], 50_000)
    writer = None
    seen, slowest = group.start(0, _use_transport(group, 1)).answer()
    for attempt in range(times):
        if writer is None or number == signal.SIGKILL:
            reader, writer = group.start(1, hang_in_read()), group.start(2, _go_on_publishing(group, seen))
            reader.answer()
            reader.signal(number)
        writer.answer()
        time.sleep(0.003 * attempt)
        writer.signal(number)
        seen, slow = group.start(0, _use_transport(group, 41 + 40 * attempt)).answer()
        slowest = max(slowest, slow)
        if number == signal.SIGSTOP:
            writer.signal(signal.SIGCONT)
    return f"{40 + 40 * times} publishes and reads, the slowest took {slowest * 1e3:.1f} ms"


def _go_on_publishing(group: Participants, last: int) -> Task:
    """A client that was started again goes on after the last version that was seen of it."""

    def task(transport: Transport, report: Report) -> object:
        version = last
        while True:
            version += 1
            transport.publish(full(group, version), version)
            if version % 50 == 0:
                report(version)

    return task


def _use_transport(group: Participants, first: int) -> Task:
    def task(transport: Transport, report: Report) -> object:
        version, slowest = 0, 0.0
        for own in range(first, first + 40):
            began = time.perf_counter()
            transport.publish(full(group, own), own)
            value, version = newest(transport, 2)
            slowest = max(slowest, time.perf_counter() - began)
            if value != version:
                raise Failed(f"version {version} came with the model of version {value:g}")
        if transport.read(0, lambda x, version: (value_of(x), version)) not in (None, (own, own)):
            raise Failed("the last publish did not become the newest model")
        return version, slowest

    return task


def bounded_memory(group: Participants) -> str:
    """Hundreds of large models for a neighbour that never reads: the publisher does not grow."""
    group.open(ring(2), LARGE // 4)
    grown = group.start(0, _publish_and_weigh(group)).answer()
    if grown > 16.0:
        raise Failed(f"grew by {grown:.0f} MB in 300 publishes of 1 MB")
    return f"grew by {grown:.1f} MB in 300 publishes of 1 MB"


def _publish_and_weigh(group: Participants) -> Task:
    def task(transport: Transport, report: Report) -> float:
        before = 0.0
        for version in range(1, 331):
            transport.publish(full(group, version), version)
            if version == 30:
                before = _resident()
        return _resident() - before

    return task


def _resident() -> float:
    """This process's memory in MB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def observers_see_models(group: Participants) -> str:
    """Whoever evaluates sees x0 and then what was published or shown, exactly, whatever the codec does."""
    plan = group.open(ring(2), codec=Halves)
    observer = plan.observe()
    try:
        for version, act in enumerate(("nothing", "publish", "show", "publish")):
            if version:
                group.start(0, _make_known(group, act, version)).answer()
            seen = observer.read(0, lambda x, version: (value_of(x), version))
            if seen != (version / 3, version):
                raise Failed(f"after {act} of version {version} an observer sees {seen}")
    finally:
        observer.close()
    return "x0, published and shown models"


def _make_known(group: Participants, act: str, version: int) -> Task:
    def task(transport: Transport, report: Report) -> object:
        getattr(transport, act)(full(group, version / 3), version)
        return None

    return task


def codec_is_used(group: Participants) -> str:
    """Neighbours get published and exchanged models as the codec makes them, once per model."""
    group.open(ring(2), codec=Halves)
    sender = group.start(0, _send_thirds(group))
    wrong = group.start(1, _receive_thirds()).answer()
    sender.answer()
    if wrong:
        raise Failed(wrong)
    return "16 of 64 bits sent, published and in rounds"


def _send_thirds(group: Participants) -> Task:
    def task(transport: Transport, report: Report) -> object:
        transport.publish(full(group, 1 / 3), 7)
        transport.offer(full(group, 2 / 3), 1, (1,))
        until(lambda: newest(transport, 1)[1] == 1, "the reader's answer")
        return None

    return task


def _receive_thirds() -> Task:
    def task(transport: Transport, report: Report) -> str:
        until(lambda: newest(transport, 0)[1] == 7, "the published model")
        published, exchanged = newest(transport, 0)[0], transport.collect(0, 1, value_of)
        transport.publish(transport.load(), 1)
        expected = float(np.float16(1 / 3)), float(np.float16(2 / 3))
        return "" if (published, exchanged) == expected else f"{published}, {exchanged}, not {expected}"

    return task


class Halves:
    """A codec for checks: rounds to 16 bits."""

    name = "halves"

    def most_bytes(self, size: int, dtype: npt.DTypeLike) -> int:
        return 2 * size

    def encode(self, x: Vector) -> Bytes:
        return x.astype(np.float16).view(np.uint8)

    def decode(self, data: Bytes, size: int, dtype: npt.DTypeLike) -> Vector:
        return data.view(np.float16).astype(dtype)

    def state(self) -> Memory:
        return {}

    def restore(self, memory: Memory) -> None:
        """It remembers nothing."""


CHECKS = (newest_wins, never_torn, never_backwards, stopped_peers, killed_peers, bounded_memory,
          observers_see_models, codec_is_used)  # fmt: skip
