"""Keep freed memory in the process."""

from __future__ import annotations

import numpy as np


def keep_freed_memory() -> None:
    """Let the C library keep up to 64 MB of freed memory instead of giving it back after every step.

    A training step allocates and frees a few megabytes. By default glibc returns them to the kernel and
    faults them in again a moment later, which took half of the time of batched gradients. It raises its
    thresholds when a large block is freed, so one such block (never touched, hence free of charge) is
    enough; other C libraries do not mind.
    """
    np.empty(31 << 20, dtype=np.uint8)
