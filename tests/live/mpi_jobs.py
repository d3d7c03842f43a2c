"""Jobs under mpiexec for tests: on this machine, bounded in time; skipped where MPI is not installed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from swiftfl.errors import UserError
from swiftfl.transports import launch

HERE = Path(__file__).parent
SOURCE = Path(launch.__file__).parents[2]  # the same swiftfl as that of the tests
PATHS = (HERE, HERE.parent, SOURCE)
LIMIT = 240.0


def _missing() -> str | None:
    try:
        return "these options are Open MPI's" if launch.is_mpich() else None
    except (UserError, OSError, subprocess.SubprocessError) as error:
        return str(error)


MISSING = _missing()
needs_mpi = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

Job = subprocess.Popen[str]
_started: list[tuple[Job, Path]] = []


def start(n: int, program: list[str], options: tuple[str, ...] = ()) -> Job:
    place = Path(tempfile.mkdtemp(prefix="mpi-"))  # ranks that are killed cannot remove what they made there
    paths = os.pathsep.join(map(str, PATHS))
    job = subprocess.Popen(
        launch.command(n, program, options),
        env={**launch.environment(), "PYTHONPATH": paths, "TMPDIR": str(place)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    _started.append((job, place))
    return job


@pytest.fixture(autouse=True)
def no_job_is_left() -> Iterator[None]:
    """Also where a test fails in the middle of one."""
    yield
    while _started:
        job, place = _started.pop()
        if job.poll() is None:
            job.send_signal(signal.SIGTERM)
            job.communicate(timeout=LIMIT)
        shutil.rmtree(place, ignore_errors=True)


def end(job: Job) -> subprocess.CompletedProcess[str]:
    """What it said; whatever is left of it after the limit is killed, all ranks with it."""
    try:
        out, err = job.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        job.send_signal(signal.SIGTERM)  # mpiexec ends its ranks
        try:
            out, err = job.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            out, err = job.communicate()
        pytest.fail(f"not over after {LIMIT:g} s:\n{out}\n{err}")
    return subprocess.CompletedProcess(job.args, job.returncode, out, err)


def under_mpi(n: int, program: list[str], options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return end(start(n, program, options))


def swiftfl(n: int, *arguments: str) -> Job:
    return start(n, ["-m", "swiftfl", *arguments])


def pid_of(rank: int, folder: Path) -> int:
    """The process that works for this rank in the job that records in this folder.

    If ranks share their imports, that is not the one that the launcher has started, and it has its number in
    its name.
    """
    found: list[int] = []
    for process in Path("/proc").iterdir():
        try:
            command = (process / "cmdline").read_bytes().split(b"\0")
            environment = (process / "environ").read_bytes().split(b"\0")
            name = (process / "comm").read_text().strip()
        except OSError:
            continue
        if str(folder).encode() not in command:
            continue
        if name == f"swiftfl-{rank}":
            return int(process.name)
        if f"OMPI_COMM_WORLD_RANK={rank}".encode() in environment and not name.startswith("swiftfl-"):
            found.append(int(process.name))
    if not found:
        raise LookupError(f"no rank {rank} works for {folder}")
    return found[0]
