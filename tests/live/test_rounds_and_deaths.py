"""Rounds, reductions and restarts over shared memory while clients and parents die."""

from __future__ import annotations

import json
import multiprocessing as mp
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import pytest

from swiftfl.transports.base import Finished, Lost
from swiftfl.transports.shared_memory.transport import SharedMemory, SharedMemoryTransport

FORK = mp.get_context("fork")
LONG = 60.0
SIZE = 1000


def ring(n: int) -> list[tuple[int, ...]]:
    return [tuple(sorted({(i - 1) % n, (i + 1) % n} - {i})) for i in range(n)]


def plan_of(n: int) -> SharedMemory:
    return SharedMemory.create(ring(n), np.zeros(SIZE, np.float32))


def full(value: float) -> np.ndarray:
    return np.full(SIZE, value, np.float32)


def fork(task: Callable[..., None], *arguments: object) -> BaseProcess:
    process = FORK.Process(target=task, args=arguments, daemon=True)
    process.start()
    return process


def join(processes: list[BaseProcess]) -> None:
    for process in processes:
        process.join(LONG)
    late = [process for process in processes if process.exitcode is None]
    for process in late:
        process.kill()
    assert not late, "blocked"


@pytest.mark.parametrize("dead", [1, 8, 15])
def test_reductions_agree_whoever_dies(dead: int, tmp_path: Path) -> None:
    """1, half, and all but one of 16 clients are killed at random moments: the others' means agree."""

    def reduce(i: int) -> None:
        wire = plan.connect(i)
        means = []
        for round in range(1, 301):
            mean, _ = wire.all_reduce(full(i + round), 1.0, round)
            assert mean.min() == mean.max()
            means.append(float(mean[0]))
        (tmp_path / f"{i}.json").write_text(json.dumps(means))
        wire.finish()

    n = 16
    plan = plan_of(n)
    processes = [fork(reduce, i) for i in range(n)]
    time.sleep(0.05)
    for i in range(dead):
        processes[i].kill()
        processes[i].join(LONG)
        plan.mark_gone(i)
        time.sleep(0.003)
    join(processes)
    living = [json.loads((tmp_path / f"{i}.json").read_text()) for i in range(dead, n)]
    assert all(means == living[0] for means in living)
    assert living[0][-1] >= 300


def test_rounds_go_on_without_the_dead_and_with_the_finished() -> None:
    def meet(i: int, rounds: int) -> None:
        wire = plan.connect(i)
        for round in range(1, rounds + 1):
            here = [k for k in ring(4)[i] if k not in wire.lost()]
            wire.offer(full(round), round, here)
            for k in here:
                try:
                    assert wire.collect(k, round, lambda x: float(x[0])) == round
                except Finished:
                    assert wire.read(k, lambda x, version: version) == 77
                except Lost:
                    continue
        wire.publish(full(77), 77)
        wire.finish()

    plan = plan_of(4)
    processes = [fork(meet, i, 20 if i == 1 else 10**9 if i == 3 else 400) for i in range(4)]
    time.sleep(0.1)
    processes[3].kill()
    processes[3].join(LONG)
    plan.mark_gone(3)
    join(processes)
    assert [process.exitcode for process in processes] == [0, 0, 0, -signal.SIGKILL]


def test_a_restarted_client_joins_again() -> None:
    plan = plan_of(2)
    wire, first = plan.connect(0), plan.connect(1)
    first.publish(full(8), 8)
    first.close()
    plan.mark_gone(1)
    assert wire.lost() == {1}
    plan.rejoin(1, from_round=10)
    assert wire.lost() == frozenset()
    with pytest.raises(Lost):
        wire.collect(1, 9, float)
    second = plan.connect(1)
    assert second.read(1, lambda x, version: version) == 8
    second.publish(full(3), 3)  # a checkpoint may be older than what was seen: the reader decides
    assert wire.read(1, lambda x, version: version) == 3
    second.offer(full(10), 10, (0,))
    assert wire.collect(1, 10, lambda x: float(x[0])) == 10.0


def test_a_round_that_was_not_for_me_is_refused() -> None:
    plan = plan_of(3)
    a, b = plan.connect(0), plan.connect(1)
    a.offer(full(5), 5, (2,))
    with pytest.raises(Lost):
        b.collect(0, 4, float)


def test_wrong_sizes_and_old_versions_are_refused() -> None:
    wire: SharedMemoryTransport = plan_of(2).connect(0)
    wire.publish(full(2), 2)
    with pytest.raises(ValueError, match="version"):
        wire.publish(full(1), 1)
    for call in (
        lambda x: wire.publish(x, 3),
        lambda x: wire.offer(x, 1, (1,)),
        lambda x: wire.all_reduce(x, 1.0, 1),
    ):
        with pytest.raises(ValueError, match="no model"):
            call(np.ones(1, np.float32))


PARENT = """
import os, sys, time, multiprocessing as mp
import numpy as np
from swiftfl.transports.shared_memory.transport import SharedMemory

def work(i):
    wire = plan.connect(i)
    os.write(1, b"%d\\n" % os.getpid())  # in one piece: the other writes there, too
    version = 0
    while os.getppid() == parent:
        version += 1
        wire.publish(np.full(1000, version, np.float32), version)
        wire.read(1 - i, lambda x, version: None)

plan = SharedMemory.create([(1,), (0,)], np.zeros(1000, np.float32))
parent = os.getpid()
for i in range(2):
    mp.get_context("fork").Process(target=work, args=(i,)).start()
time.sleep(600)
"""


def test_nothing_stays_when_the_parent_is_killed() -> None:
    before = _left()
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    children = [int(parent.stdout.readline()) for _ in range(2)]
    parent.kill()
    parent.wait(LONG)
    parent.stdout.close()
    end = time.monotonic() + LONG
    while any(_runs(child) for child in children):
        assert time.monotonic() < end
        time.sleep(0.01)
    assert _left() - before == set()


def _left() -> set[Path]:
    """Files in /dev/shm, but for those of an MPI program that may run beside us."""
    return {file for file in Path("/dev/shm").iterdir() if not file.name.startswith("sm_segment.")}


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (OSError, IndexError):
        return False
