"""Shared by all tests: one torch thread (two on a busy machine are ten times slower), and Ctrl-C answered."""

from __future__ import annotations

import contextlib
import os
import signal

pytest_plugins = ["browser_fixtures", "missing_libraries", "once_more"]

# As `make test` has it: otherwise programs that tests start compute with other threads than the tests, and
# losses differ in their last bits.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

with contextlib.suppress(ImportError):  # tests of graphs need no torch, and `make test-pythons` may have none
    import torch

    torch.set_num_threads(1)

# A shell starts its background jobs with Ctrl-C ignored, nohup all of them with SIGHUP ignored, and children
# inherit that: tests of signals need the usual answers, however the tests themselves were started.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        with contextlib.suppress(ValueError):  # only the main thread may say so
            signal.signal(number, usual)
