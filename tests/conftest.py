"""Shared by all tests: one torch thread (two on a busy machine are ten times slower), and Ctrl-C answered."""

from __future__ import annotations

import contextlib
import signal

pytest_plugins = ["browser_fixtures"]

with contextlib.suppress(ImportError):  # tests of graphs need no torch, and `make test-pythons` may have none
    import torch

    torch.set_num_threads(1)

# A shell starts its background jobs with Ctrl-C ignored, and children inherit that: tests of Ctrl-C
# need the usual answer, however the tests themselves were started.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    with contextlib.suppress(ValueError):  # only the main thread may say so
        signal.signal(signal.SIGINT, signal.default_int_handler)
