"""Shared by all tests: one torch thread (two on a busy machine are ten times slower), and Ctrl-C answered."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
from collections.abc import Iterator

import pytest

pytest_plugins = ["browser_fixtures", "missing_libraries", "once_more"]

# As `make test` has it: otherwise programs that tests start compute with other threads than the tests, and
# losses differ in their last bits.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

with contextlib.suppress(ImportError):  # tests of graphs need no torch, and `make test-pythons` may have none
    import torch

    torch.set_num_threads(1)

with contextlib.suppress(ImportError):
    import typer.main

    # A program calls its commands once. Tests call them thousands of times, and to make them is most of that.
    typer.main.get_command = functools.cache(typer.main.get_command)

# A shell starts its background jobs with Ctrl-C ignored, nohup all of them with SIGHUP ignored, and children
# inherit that: tests of signals need the usual answers, however the tests themselves were started.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        with contextlib.suppress(ValueError):  # only the main thread may say so
            signal.signal(number, usual)


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Without coverage, here and in the programs that the test starts: long tests take half as long."""
    for name in [name for name in os.environ if name.startswith("COV")]:
        monkeypatch.delenv(name)
    coverage = sys.modules.get("coverage")
    measuring = None if coverage is None else coverage.Coverage.current()
    if measuring is not None:
        measuring.stop()
    yield
    if measuring is not None:
        measuring.start()


@pytest.fixture
def without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """For runs by command of which no picture is looked at: to draw them takes longer than the run."""
    monkeypatch.setattr("swiftfl.cli.run._draw", lambda result: True)
