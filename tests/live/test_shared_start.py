"""Ranks that share their imports: each process is as if it had been started alone, and ends so."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from live_worlds import until
from mpi_jobs import SOURCE, end, needs_mpi, no_job_is_left, swiftfl

from swiftfl.cli import shared_start

__all__ = ["no_job_is_left"]

PROGRAM = """
import json, os, signal, sys, time
from pathlib import Path
from swiftfl.signals import interrupt_at_signals
interrupt_at_signals()
from swiftfl.cli import shared_start
shared_start._SECONDS = {patience}
shared_start._IMPORTED = {imported!r}
first = os.getpid()
{before}
try:
    shared_start.share_start()
    umask = os.umask(0)
    about = dict(
        shared=os.getpid() != first, pid=os.getpid(), parent=os.getppid(), own=os.environ["OMPI_OWN"],
        argv=sys.argv[1:], folder=os.getcwd(), umask=umask, processors=sorted(os.sched_getaffinity(0)),
        name=Path("/proc/self/comm").read_text().strip(), files=len(os.listdir("/proc/self/fd")))
    Path(sys.argv[2]).write_text(json.dumps(about))
    print("out", sys.argv[2])
    print("err", sys.argv[2], file=sys.stderr)
    {work}
except KeyboardInterrupt:
    sys.exit(130)
"""

SAVES = """
    with stop_requests() as stop:
        Path(sys.argv[2] + ".waits").touch()
        while not stop():
            time.sleep(0.01)
        time.sleep(1)
    sys.exit(130)
"""
COUNTED = """
from swiftfl.engines.live.local import forkserver
fork, send = forkserver.fork_child, shared_start.socket.send_fds
def counted():
    with open({forks!r}, "a") as file:
        file.write("fork ")
    return fork()
def asked(*given):
    sent = send(*given)
    Path(sys.argv[2] + ".asked").touch()
    return sent
forkserver.fork_child, shared_start.socket.send_fds = counted, asked
sys.path.insert(0, {folder!r})
"""


class Ranks:
    """Processes as a launcher would start them on one machine."""

    def __init__(self, folder: Path, **program: Any) -> None:
        self.folder, self.namespace = folder, f"test-{os.getpid()}-{time.monotonic_ns()}"
        given = {"patience": 30.0, "imported": ["json"], "work": "pass", "before": "pass", **program}
        self.program, self.started = PROGRAM.format(**given), list[subprocess.Popen[str]]()

    def start(self, number: int, count: int, environment: dict[str, str] | None = None, **more: Any) -> None:
        own = {
            "OMPI_COMM_WORLD_LOCAL_RANK": str(number),
            "OMPI_COMM_WORLD_LOCAL_SIZE": str(count),
            "PMIX_NAMESPACE": self.namespace,
            "OMPI_OWN": f"rank {number}",
            "PYTHONPATH": str(SOURCE),
            shared_start.IMPORTS: shared_start.SHARED,
        }
        self.started.append(
            subprocess.Popen(
                [sys.executable, "-c", self.program, "run", str(self.folder / f"{number}.json")],
                env={**os.environ, **own, **(environment or {})},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                **more,
            )
        )

    def about(self, number: int) -> dict[str, Any]:
        file = self.folder / f"{number}.json"
        until(lambda: file.is_file() and file.read_text().endswith("}"), "the rank", 60)
        found: dict[str, Any] = json.loads(file.read_text())
        return found

    def stands_in(self, number: int) -> bool:
        """Whether a process passes signals on: this one is caught by no other."""
        status = Path(f"/proc/{self.started[number].pid}/status").read_text()
        caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
        return bool(int(caught, 16) >> (signal.SIGUSR2 - 1) & 1)

    def end(self, number: int) -> tuple[int, str, str]:
        out, err = self.started[number].communicate(timeout=60)
        return self.started[number].returncode, out, err

    def close(self) -> None:
        """Whatever a test has left."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=60)
        for file in self.folder.glob("*.json"):
            until(lambda file=file: not _lives(json.loads(file.read_text())["pid"]), "the end of a rank", 20)


MakeRanks = Callable[..., Ranks]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeRanks]:
    made: list[Ranks] = []

    def make(**program: Any) -> Ranks:
        made.append(Ranks(tmp_path, **program))
        return made[-1]

    yield make
    for ranks in made:
        ranks.close()


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_every_rank_is_as_if_it_had_been_started_alone(make: MakeRanks, tmp_path: Path) -> None:
    ranks, folder, there = make(), tmp_path, tmp_path / "there"
    there.mkdir()
    processor = min(os.sched_getaffinity(0))
    ranks.start(1, 3, cwd=there, umask=0o027)
    ranks.start(2, 3, preexec_fn=lambda: os.sched_setaffinity(0, {processor}))
    ranks.start(0, 3)
    found = [ranks.about(number) for number in range(3)]
    assert [about["shared"] for about in found] == [True] * 3
    assert len({about["parent"] for about in found}) == 1, "one process has imported"
    assert [about["own"] for about in found] == ["rank 0", "rank 1", "rank 2"]
    assert [about["argv"] for about in found] == [["run", str(folder / f"{k}.json")] for k in range(3)]
    assert [about["folder"] for about in found] == [str(Path.cwd()), str(there), str(Path.cwd())]
    assert found[1]["umask"] == 0o027 != found[0]["umask"]
    assert found[2]["processors"] == [processor]
    assert found[0]["processors"] == sorted(os.sched_getaffinity(0))
    assert [about["name"] for about in found] == ["swiftfl-0", "swiftfl-1", "swiftfl-2"]
    assert {about["files"] for about in found} == {4}, "0, 1, 2 and the look itself"
    for k, number in enumerate((1, 2, 0)):
        file = folder / f"{number}.json"
        assert ranks.end(k) == (0, f"out {file}\n", f"err {file}\n")


@pytest.mark.parametrize(
    ("work", "code"),
    [
        ("sys.exit(3)", 3),
        ("raise ValueError", 1),
        ("os._exit(137)", 137),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV),
        ("signal.signal(15, signal.SIG_DFL); os.kill(os.getpid(), 15)", -signal.SIGTERM),
    ],
)
def test_a_stand_in_ends_like_the_process_that_it_stands_in_for(
    make: MakeRanks, work: str, code: int
) -> None:
    ranks = make(work=work)
    for k in range(2):
        ranks.start(k, 2)
    assert [ranks.end(k)[0] for k in range(2)] == [code, code]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_signals_are_passed_on(make: MakeRanks, number: int) -> None:
    ranks = make(work="time.sleep(60)")
    for k in range(2):
        ranks.start(k, 2)
    assert ranks.about(0)["shared"]
    assert ranks.about(1)["shared"]
    for k in range(2):
        until(lambda k=k: ranks.stands_in(k), "its stand-in", 60)
    ranks.started[1].send_signal(number)
    assert ranks.end(1)[0] == 130
    assert ranks.started[0].poll() is None, "the other one goes on"
    ranks.started[0].send_signal(number)
    assert ranks.end(0)[0] == 130


def test_a_signal_to_the_whole_job_does_not_end_the_server(make: MakeRanks) -> None:
    """As a service manager sends it: every rank stops by itself, and has the time to save."""
    ranks = make(before="from swiftfl.signals import stop_requests", work=SAVES)
    for k in range(2):
        ranks.start(k, 2)
    about = [ranks.about(k) for k in range(2)]
    for k in range(2):
        until(lambda k=k: (ranks.folder / f"{k}.json.waits").exists(), "its work", 60)
        until(lambda k=k: ranks.stands_in(k), "its stand-in", 60)
    for pid in (about[0]["parent"], *(each["pid"] for each in about), *(each.pid for each in ranks.started)):
        os.kill(pid, signal.SIGTERM)
    assert [ranks.end(k)[0] for k in range(2)] == [130, 130]


def test_ended_processes_are_seen_where_a_wrapper_ignores_that_signal(make: MakeRanks) -> None:
    ranks = make(work="sys.exit(3)")
    for k in range(2):
        ranks.start(k, 2, preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    assert [ranks.about(k)["shared"] for k in range(2)] == [True, True]
    assert [ranks.end(k)[0] for k in range(2)] == [3, 3]


def test_nothing_is_begun_for_a_stand_in_that_was_killed_meanwhile(make: MakeRanks, tmp_path: Path) -> None:
    """Imports take seconds, in which a launcher may give up a rank; the others have the server."""
    module = tmp_path / "slow_import.py"
    module.write_text(
        "import time\nfrom pathlib import Path\n"
        "while not Path(__file__).with_name('go').exists():\n    time.sleep(0.01)\n"
    )
    forks = tmp_path / "forks"
    before = COUNTED.format(forks=str(forks), folder=str(tmp_path))
    ranks = make(imported=["slow_import"], before=before)
    folder = tmp_path / "folder"
    folder.mkdir()
    ranks.start(0, 3)
    ranks.start(1, 3)
    ranks.start(2, 3, cwd=folder)
    for k in range(3):
        until(lambda k=k: (tmp_path / f"{k}.json.asked").exists(), "its question", 60)
    ranks.started[1].kill()
    folder.rename(tmp_path / "renamed")
    (tmp_path / "go").touch()
    assert [ranks.about(k)["shared"] for k in (0, 2)] == [True, True]
    assert [ranks.end(k)[0] for k in range(3)] == [0, -signal.SIGKILL, 0]
    assert ranks.about(2)["folder"] == str(tmp_path / "renamed")
    assert not (tmp_path / "1.json").exists()
    assert forks.read_text().split() == ["fork", "fork"]


def test_nothing_stays_behind_when_a_stand_in_is_killed(make: MakeRanks) -> None:
    ranks = make(work="time.sleep(60)")
    for k in range(2):
        ranks.start(k, 2)
    pids = [ranks.about(k)["pid"] for k in range(2)]
    ranks.started[0].kill()
    until(lambda: not _lives(pids[0]), "the end of rank 0", 20)
    assert _lives(pids[1]), "also when it was the one that had started the server"
    ranks.started[1].kill()
    for k in range(2):
        assert ranks.end(k)[0] == -signal.SIGKILL


def test_without_the_server_every_stand_in_ends(make: MakeRanks) -> None:
    ranks = make(work="time.sleep(60)")
    for k in range(2):
        ranks.start(k, 2)
    os.kill(ranks.about(1)["parent"], signal.SIGKILL)
    assert [ranks.end(k)[0] for k in range(2)] == [-signal.SIGKILL] * 2


def test_a_rank_of_another_kind_imports_by_itself(make: MakeRanks) -> None:
    ranks = make()
    ranks.start(0, 3)
    ranks.start(1, 3, {"OMP_NUM_THREADS": "7"})
    ranks.start(2, 3)
    assert [ranks.about(k)["shared"] for k in range(3)] == [True, False, True]
    assert [ranks.end(k)[0] for k in range(3)] == [0, 0, 0]


@pytest.mark.parametrize("imported", [["no_module_of_this_name"], ["json", "antigravity_of_no_kind"]])
def test_where_imports_fail_every_rank_tries_by_itself(make: MakeRanks, imported: list[str]) -> None:
    ranks = make(imported=imported, patience=2.0)
    for k in range(2):
        ranks.start(k, 2)
    assert [ranks.about(k)["shared"] for k in range(2)] == [False, False]
    assert [ranks.end(k)[0] for k in range(2)] == [0, 0]


@pytest.mark.parametrize(("function", "shared"), [("pidfd_open", False), ("sched_setaffinity", True)])
def test_what_the_kernel_refuses(make: MakeRanks, function: str, shared: bool) -> None:
    """A process that cannot be watched goes, before it has done anything; one may have other processors."""
    ranks = make(before=f"def refuse(*_): raise OSError(38, 'refused')\nos.{function} = refuse")
    for k in range(2):
        ranks.start(k, 2)
    assert [ranks.about(k)["shared"] for k in range(2)] == [shared, shared]
    assert [ranks.end(k)[0] for k in range(2)] == [0, 0]


def test_without_a_first_rank_the_others_import_by_themselves(make: MakeRanks) -> None:
    ranks = make(patience=0.2)
    ranks.start(1, 2)
    assert not ranks.about(1)["shared"]
    assert ranks.end(0)[0] == 0


@pytest.mark.parametrize(
    ("change", "shares"),
    [
        ({}, False),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "1000000"}, True),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "1000000", "SWIFTFL_IMPORTS": "apart"}, False),
        ({"SWIFTFL_IMPORTS": "shared"}, True),
    ],
)
def test_imports_are_shared_where_ranks_are_more_than_processors(
    change: dict[str, str], shares: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = {
        "OMPI_COMM_WORLD_LOCAL_RANK": "0",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
        "PMIX_NAMESPACE": "job",
    }
    for name, value in {**launched, **change}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["swiftfl", "run", "digits"])
    assert (shared_start._address() is not None) == shares
    monkeypatch.setattr(sys, "argv", ["swiftfl", "graph", "ring"])
    assert shared_start._address() is None
    monkeypatch.setattr(sys, "argv", ["swiftfl", "run"])
    monkeypatch.delenv("PMIX_NAMESPACE")
    assert shared_start._address() is None


@needs_mpi
def test_a_run_with_shared_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MPI itself is started in each rank's own process; errors are told once, with their code."""
    monkeypatch.setenv(shared_start.IMPORTS, shared_start.SHARED)
    out = tmp_path / "run"
    done = end(swiftfl(2, "run", "digits", "--engine", "mpi", "--clients", "2", "--out", str(out), "--json"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["lost"] == []
    assert (out / "summary.json").is_file()
    wrong = end(swiftfl(2, "run", "digits", "--engine", "mpi", "--clients", "3"))
    assert wrong.returncode == 2
    assert wrong.stderr.count("engine mpi needs a rank for each of 3 clients") == 1


def test_mpi_is_not_started_by_what_is_imported_for_all() -> None:
    names = ", ".join(shared_start._IMPORTED)
    program = f"import sys, {names}, threading; print('mpi4py.MPI' in sys.modules, threading.active_count())"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == ["False", "1"]
