"""The shared-memory transport under real processes, signals and deaths."""

from __future__ import annotations

import gc
import json
import multiprocessing as mp
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import pytest

from swiftfl.errors import UserError
from swiftfl.transports.codec import Identity, MakeCodec
from swiftfl.transports.compression import Bf16
from swiftfl.transports.shared_memory.layout import GONE
from swiftfl.transports.shared_memory.transport import SharedMemory, SharedMemoryTransport
from swiftfl.vector import Vector

FORK = mp.get_context("fork")
LONG = 60.0
PAIR = [(1,), (0,)]


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.002)


def plan_of(neighbours: list[tuple[int, ...]], size: int = 1000) -> SharedMemory:
    return SharedMemory.create(neighbours, np.zeros(size, np.float32))


@pytest.fixture
def start() -> Iterator[Callable[..., BaseProcess]]:
    """Starts processes, and ends those that are still there."""
    started: list[BaseProcess] = []

    def begin(task: Callable[..., None], *arguments: object) -> BaseProcess:
        process = FORK.Process(target=task, args=arguments, daemon=True)
        process.start()
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.is_alive():
            process.kill()
        process.join(LONG)


@pytest.fixture(params=["words", "locks"])
def _both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots are held by words where processors allow it, elsewhere by locks of the kernel."""
    monkeypatch.setattr("swiftfl.transports.shared_memory.transport.FENCES_WORK", request.param == "words")


def newest(wire: SharedMemoryTransport, k: int) -> tuple[float, int]:
    seen = wire.read(k, lambda x, version: (float(x[0]), version))
    assert seen is not None
    return seen


@pytest.mark.usefixtures("_both_ways")
def test_x0_is_there_from_the_start_and_the_newest_wins() -> None:
    plan = SharedMemory.create(PAIR, np.array([1.0, 2.0, 3.0]))
    a, b = plan.connect(0), plan.connect(1)
    assert newest(b, 0) == (1.0, 0)
    for version in range(1, 20):
        a.publish(np.full(3, 10.0 * version), version)
    assert newest(b, 0) == (190.0, 19)
    assert newest(a, 1) == (1.0, 0)
    assert newest(a, 0) == (190.0, 19)  # its own, too
    assert plan.observe().read(0, lambda x, version: version) == 19


def write_for_ever(plan: SharedMemory, size: int) -> None:
    wire = plan.connect(0)
    version = 0
    while True:
        version += 1
        wire.publish(np.full(size, version, np.float32), version)


@pytest.mark.usefixtures("_both_ways")
def test_no_read_is_torn(start: Callable[..., BaseProcess]) -> None:
    size = 250_000
    plan = plan_of(PAIR, size)
    wire = plan.connect(1)
    start(write_for_ever, plan, size)
    until(lambda: newest(wire, 0)[1] > 0)
    last = reads = 0
    end = time.monotonic() + LONG
    while last < 300 or reads < 300:
        assert time.monotonic() < end, (last, reads)
        seen = wire.read(0, lambda x, version: (float(x.min()), float(x.max()), version))
        assert seen is not None
        low, high, version = seen
        assert low == high == version >= last
        last = version
        reads += 1


def test_a_view_cannot_be_written() -> None:
    wire = plan_of(PAIR).connect(1)
    with pytest.raises(ValueError, match="read-only"):
        wire.read(0, lambda x, version: x.fill(1))


@pytest.mark.usefixtures("_both_ways")
def test_a_stopped_reader_delays_nobody(start: Callable[..., BaseProcess], tmp_path: Path) -> None:
    def read_and_hang() -> None:
        plan.connect(1).read(0, lambda x, version: ((tmp_path / "in").touch(), time.sleep(LONG)))

    plan = plan_of(PAIR)
    wire = plan.connect(0)
    wire.publish(np.ones(1000, np.float32), 1)
    reader = start(read_and_hang)
    until((tmp_path / "in").exists)
    os.kill(reader.pid or 0, signal.SIGSTOP)
    for version in range(2, 200):
        wire.publish(np.full(1000, version, np.float32), version)
    assert wire.own.refused == 0
    assert plan.observe().read(0, lambda x, version: (float(x[0]), version)) == (199.0, 199)


@pytest.mark.usefixtures("_both_ways")
def test_the_dead_keep_no_lock(start: Callable[..., BaseProcess], tmp_path: Path) -> None:
    """Readers killed in mid-read, many more than there are slots."""

    def read_and_hang(k: int) -> None:
        plan.connect(1).read(0, lambda x, version: ((tmp_path / str(k)).touch(), time.sleep(LONG)))

    plan = plan_of(PAIR)
    wire = plan.connect(0)
    for k in range(8):
        reader = start(read_and_hang, k)
        until((tmp_path / str(k)).exists)
        reader.kill()
        reader.join(LONG)
        wire.publish(np.ones(1000, np.float32), k + 1)
    assert wire.own.refused == 0


PUBLISHES = """
import json, sys
import numpy as np
from swiftfl.transports.shared_memory import SharedMemory
plan = SharedMemory.opened(json.loads(sys.argv[1]), [int(file) for file in sys.argv[2:]], CODEC)
plan.connect(0).publish(np.full(1000, 7, np.float32), 7)
"""


@pytest.mark.parametrize("codec", [Identity, Bf16], ids=["exact", "with a second memory"])
def test_a_plan_is_handed_to_a_process_that_was_not_forked(codec: MakeCodec) -> None:
    """By descriptors and plain JSON: nothing is pickled, and nothing has a name."""
    plan = SharedMemory.create(PAIR, np.zeros(1000, np.float32), codec)
    program = PUBLISHES.replace("CODEC", codec.__name__)
    program = f"from {codec.__module__} import {codec.__name__}\n{program}"
    line = [sys.executable, "-c", program, json.dumps(plan.described()), *map(str, plan.files)]
    subprocess.run(line, pass_fds=plan.files, check=True, timeout=LONG)
    assert newest(plan.connect(1), 0) == (7.0, 7)
    assert plan.observe().read(0, lambda x, version: (float(x[0]), version)) == (7.0, 7)
    plan.close()


def test_averages_are_counted_from_the_connection_on() -> None:
    """A client that is started again has counted those before it was lost."""
    plan = plan_of(PAIR)
    first, other = plan.connect(0), plan.connect(1)
    other.average_with(0)
    again = plan.connect(0)
    other.average_with(0)
    assert (first.answers, again.answers, other.answers) == (2, 1, 0)
    for wire in (first, other, again):
        wire.close()
    plan.close()


def test_closing_gives_every_descriptor_back() -> None:
    before = belongings()
    plan = plan_of(PAIR)
    wire, other, observer = plan.connect(0), plan.connect(1), plan.observe()
    wire.publish(np.ones(1000, np.float32), 1)
    newest(other, 0)
    observer.read(1, lambda x, version: version)
    assert plan.words.get(0, GONE) == 0
    for end in (wire, other, observer, plan):
        end.close()
        end.close()
    assert belongings() == before


def belongings() -> tuple[int, int]:
    """Descriptors and shared mappings of this process; earlier tests' plans are collected first."""
    gc.collect()
    maps = Path("/proc/self/maps").read_text().count("memfd:swiftfl")
    return len(list(Path("/proc/self/fd").iterdir())), maps


@pytest.mark.parametrize(
    ("neighbours", "x0", "complaint"),
    [
        ([(1,), ()], np.zeros(10), "neighbour"),
        ([(0,)], np.zeros(10), "neighbour"),
        ([(1, 1), (0, 0)], np.zeros(10), "twice"),
        (PAIR, np.zeros((2, 5)), "2-d"),
        (PAIR, np.zeros(0), "0 numbers"),
        (PAIR, np.zeros(10, np.int64), "int64"),
        ([], np.zeros(10), "0 clients"),
    ],
)
def test_nonsense_is_refused(neighbours: list[tuple[int, ...]], x0: Vector, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        SharedMemory.create(neighbours, x0)


def test_more_memory_than_there_is_is_refused() -> None:
    size = 2**36
    endless = np.broadcast_to(np.float32(0), (size,))
    with pytest.raises(UserError, match="GiB"):
        SharedMemory.create(PAIR, endless)
