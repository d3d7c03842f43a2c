"""One thread of torch per process of a run."""

from __future__ import annotations

import sys


def one_thread() -> None:
    """Keep torch, where a workload has loaded it, to one thread.

    The models are small, and a run has many processes or other programs beside it: with a thread per core
    the same run takes up to ten times as long.
    """
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
