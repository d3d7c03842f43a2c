"""One public battery that any transport must pass: `swiftfl check-transport NAME`.

Each check is a small experiment with real clients: processes that are stopped and killed where the
transport has processes, threads where it stays in one. To check a transport of your own:

    from swiftfl.transports.base import TransportEntry
    from swiftfl.transports.conformance import battery
    reports = battery(TransportEntry("mine", make))

where `make(neighbours, x0, codec, in_rounds)` makes a `TransportPlan` (`swiftfl.transports.base`). One that
is registered is examined by its name.
"""

from __future__ import annotations

import gc
import json
import multiprocessing as mp
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from swiftfl.fresh import fresh_python
from swiftfl.transports.base import TransportEntry
from swiftfl.transports.conformance import small, wait_free, waiting
from swiftfl.transports.conformance.participants import Failed, Participants, Skipped
from swiftfl.transports.launch import command, environment

__all__ = ["CHECKS", "CheckReport", "battery"]

CHECKS: tuple[Callable[[Participants], str], ...] = (*wait_free.CHECKS, *small.CHECKS, *waiting.CHECKS)


@dataclass(frozen=True)
class CheckReport:
    """What one check found; `passed` is None where it makes no sense with this transport."""

    name: str
    passed: bool | None
    detail: str
    seconds: float


def battery(
    entry: TransportEntry, checks: tuple[Callable[[Participants], str], ...] = CHECKS
) -> Iterator[CheckReport]:
    """Run the checks one after the other; then, whether they left anything behind."""
    before = _belongings()
    if entry.program is not None:
        yield from _launched(entry, checks)
    else:
        yield from (examine(Participants(entry), check) for check in checks)
    began = time.perf_counter()
    gc.collect()
    left = _belongings() - before
    detail = "left: " + ", ".join(sorted(left)) if left else "no descriptors, mappings, files or processes"
    yield CheckReport("nothing_left", not left, detail, time.perf_counter() - began)


def examine(group: Participants, check: Callable[[Participants], str]) -> CheckReport:
    """Do one check with these clients."""
    began = time.perf_counter()
    passed: bool | None
    try:
        passed, detail = True, check(group)
    except Failed as failure:
        passed, detail = False, str(failure)
    except Skipped as why:
        passed, detail = None, str(why)
    except Exception as error:
        passed, detail = False, f"{type(error).__name__}: {error}"
    finally:
        group.close()
    return CheckReport(check.__name__, passed, detail, time.perf_counter() - began)


def _launched(
    entry: TransportEntry, checks: tuple[Callable[[Participants], str], ...]
) -> Iterator[CheckReport]:
    """The checks by a program of the transport's own; whatever did not report has failed."""
    names = [check.__name__ for check in checks]
    program = fresh_python(str(entry.program), *names)
    started = subprocess.Popen(
        program if entry.starts_clients else command(4, program[1:]),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert started.stdout is not None
    limit = threading.Timer(60.0 * (1 + len(names)), started.kill)
    limit.start()
    try:
        for line in started.stdout:
            if line.startswith("{"):
                report = CheckReport(**json.loads(line))
                names.remove(report.name)
                yield report
    finally:
        limit.cancel()
        limit.join()
        started.terminate()
        started.wait()
        started.stdout.close()
    yield from (CheckReport(name, False, "its ranks ended without a word", 0.0) for name in names)


def _belongings() -> set[str]:
    """Open files, shared mappings, files in /dev/shm and child processes of this process."""
    links = set()
    for entry in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            links.add(f"descriptor {entry} -> {os.readlink(f'/proc/self/fd/{entry}')}")  # noqa: PTH115
        except OSError:
            continue  # the descriptor of this very listing
    maps = {line.split(maxsplit=5)[5].strip() for line in _lines("/proc/self/maps") if "memfd:" in line}
    # Segments of Open MPI belong to whatever MPI program runs beside us, and come and go with it.
    shared = {str(file) for file in Path("/dev/shm").glob("*") if not file.name.startswith("sm_segment.")}
    return links | maps | shared | {f"process {child.name}" for child in mp.active_children()}


def _lines(file: str) -> list[str]:
    return Path(file).read_text(encoding="utf-8").splitlines()
