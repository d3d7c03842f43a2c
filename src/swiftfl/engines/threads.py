"""How many processors a run takes: one thread of torch per process, and its share of the cores."""

from __future__ import annotations

import os
import sys

CORES = "SWIFTFL_CORES"
"""The variable by which whoever starts several runs at once tells each of them its share of the cores."""


def cores() -> int:
    """How many processors a run may use: those of its process, or its share of them."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    given = os.environ.get(CORES, "")
    return max(1, min(int(given), there)) if given.isdigit() else there


def one_thread() -> None:
    """Keep torch, where a workload has loaded it, to one thread.

    The models are small, and a run has many processes or other programs beside it: with a thread per core
    the same run takes up to ten times as long.
    """
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
