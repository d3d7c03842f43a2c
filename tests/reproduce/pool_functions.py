"""Functions that the tests of the job pool run in worker processes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from swiftfl.engines.threads import CORES, place_among_runs
from swiftfl.errors import UserError

Report = Callable[[int], None]


def square(report: Report, x: float) -> float:
    report(1)
    return x * x


def fail(report: Report, how: str) -> None:
    if how == "mistake":
        raise UserError("that cannot be")
    if how == "bug":
        raise ZeroDivisionError("of mine")
    print("last words", file=os.fdopen(2, "w"), flush=True)
    if how == "exit":
        os._exit(7)
    os.kill(os.getpid(), signal.SIGKILL)


def threads(report: Report) -> int:
    import torch

    print("whatever else is printed")
    return torch.get_num_threads()


def long_text(report: Report, length: int) -> str:
    return "x" * length


def not_finite(report: Report) -> list[float]:
    return [1.0, float("nan"), float("inf")]


def diverging(parameters: dict[str, float]) -> dict[str, object]:
    """A part of the convergence experiment."""
    if parameters["x"] < 0:
        raise ZeroDivisionError("negative")
    return {"averaged": [parameters["x"], float("inf")]}


def save_when_interrupted(report: Report, file: str) -> None:
    Path(file).with_suffix(".begun").touch()
    try:
        time.sleep(600)
    except KeyboardInterrupt:
        Path(file).write_text("saved")
        raise


def share(report: Report) -> int:
    """How many cores a run of this process would take as its share."""
    return int(os.environ[CORES])


def place(report: Report) -> list[int]:
    """Which of the runs at once this process computes, and how many there are."""
    return list(place_among_runs())
