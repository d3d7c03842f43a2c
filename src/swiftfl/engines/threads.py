"""How many processors a run takes: one thread of arithmetic per process, and its share of the cores."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from threadpoolctl import threadpool_limits

CORES = "SWIFTFL_CORES"
"""The variable by which whoever starts several runs at once tells each of them its share of the cores."""
PLACE = "SWIFTFL_PLACE"
"""The one by which it tells them their places among those that run at once, counted from 0: "2/8"."""
_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # of a container: microseconds of processors in so many of the clock
_LINEAR_ALGEBRA = "blas"


def cores() -> int:
    """How many processors a run may use: those of its process and its container, or its share of them."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    there = min(there, _quota() or there)
    given = os.environ.get(CORES, "")
    return max(1, min(int(given), there)) if given.isdecimal() else there


def _quota() -> int | None:
    """Processors that a container may use, rounded up; None where nothing is said."""
    try:
        quota, period = map(int, _QUOTA.read_text().split())  # "max" of a quota is none
    except (OSError, ValueError):
        return None
    return max(1, -(-quota // period)) if quota > 0 < period else None


def place_among_runs() -> tuple[int, int]:
    """Which of the runs that a pool computes at once this is, and how many there are; (0, 1) without one."""
    run, _, runs = os.environ.get(PLACE, "").partition("/")
    return (int(run), int(runs)) if run.isdecimal() and runs.isdecimal() and int(run) < int(runs) else (0, 1)


def one_thread() -> None:
    """Keep torch, where a workload has loaded it, and NumPy's linear algebra to one thread.

    The models are small, and a run has many processes or other programs beside it: with a thread per core
    the same run takes up to ten times as long. And the last bits of a product depend on the number of
    threads, which would otherwise follow from the environment.
    """
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
    threadpool_limits(limits=1, user_api=_LINEAR_ALGEBRA)


@contextlib.contextmanager
def threads_kept() -> Iterator[None]:
    """Runs keep their process to one thread; what the program had comes back."""
    import scipy.linalg  # noqa: F401  # a library that the run would load, so that its threads are known
    import torch

    threads = torch.get_num_threads()
    with threadpool_limits(limits=None, user_api=_LINEAR_ALGEBRA):  # changes nothing, and remembers
        try:
            yield
        finally:
            torch.set_num_threads(threads)
