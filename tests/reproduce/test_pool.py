"""The job pool: fresh processes, failures that are reported, and stops that wait for what is being saved."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from swiftfl.experiment import pool
from swiftfl.experiment.pool import Job, JobEvent, JobFailed, JobFinished, JobProgress, run_jobs

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path(sys.modules["swiftfl"].__file__ or "").parents[1]
    monkeypatch.setenv("PYTHONPATH", f"{HERE}:{source}")


def job(name: str, function: str, **arguments: object) -> Job:
    return Job(name, f"pool_functions:{function}", arguments)


def results(jobs: list[Job], workers: int) -> tuple[dict[str, object], dict[str, str], list[JobEvent]]:
    events: list[JobEvent] = []
    run_jobs(jobs, workers, events.append)
    done = {event.job.name: event.result for event in events if isinstance(event, JobFinished)}
    failed = {event.job.name: event.reason for event in events if isinstance(event, JobFailed)}
    return done, failed, events


@pytest.mark.parametrize("workers", [1, 3])
def test_every_job_is_done_once(workers: int) -> None:
    done, failed, events = results([job(str(x), "square", x=x) for x in range(6)], workers)
    assert done == {str(x): x * x for x in range(6)}
    assert failed == {}
    assert sum(isinstance(event, JobProgress) for event in events) == 6


def test_jobs_that_fail_are_reported_and_the_others_go_on() -> None:
    jobs = [job(how, "fail", how=how) for how in ("mistake", "bug", "exit", "kill")]
    done, failed, _ = results([*jobs, job("good", "square", x=3)], 1)
    assert done == {"good": 9}
    assert failed == {
        "mistake": "that cannot be",
        "bug": "ZeroDivisionError: of mine",
        "exit": "its process ended with code 7: last words",
        "kill": "its process was killed by signal 9: last words",
    }


def test_workers_import_what_this_process_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a user's file that has the name of one of Python's own, and lies in the working folder."""
    here, other = tmp_path / "here", tmp_path / "other"
    here.mkdir()
    other.mkdir()
    (here / "threading.py").write_text("raise RuntimeError('not the one of the library')")
    (other / "only_here.py").write_text("def answer(report): return 42")
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(other)
    done, failed, _ = results([Job("a", "only_here:answer", {})], 1)
    assert (done, failed) == ({"a": 42}, {})


def test_workers_have_one_thread_and_may_print_and_return_much() -> None:
    done, failed, _ = results([job("threads", "threads"), job("text", "long_text", length=5_000_000)], 2)
    assert failed == {}
    assert done["threads"] == 1
    assert done["text"] == "x" * 5_000_000


@pytest.mark.parametrize(
    ("jobs", "workers", "all_cores", "each"),
    [
        (1, 2, 2, {2}),
        (3, 2, 2, {1}),
        pytest.param(2, 1, 2, {2}, marks=pytest.mark.slow),
        pytest.param(3, 3, 2, {1}, marks=pytest.mark.slow),
        pytest.param(2, 2, 5, {2, 3}, marks=pytest.mark.slow),
    ],
)
def test_runs_side_by_side_share_the_cores(
    jobs: int, workers: int, all_cores: int, each: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many runs have one each, a single one has all; none is left over."""
    monkeypatch.setattr(pool, "cores", lambda: all_cores)
    done, failed, _ = results([job(str(k), "share") for k in range(jobs)], workers)
    assert failed == {}
    assert set(done.values()) == each
    assert len(done) == jobs


def test_runs_side_by_side_know_their_places() -> None:
    """By which they take the GPUs in turn; a worker that is dead leaves its place to the next one."""
    done, _, _ = results([job(str(k), "place") for k in range(2)], 2)
    assert sorted(done.values()) == [[0, 2], [1, 2]]
    done, failed, _ = results([job("dies", "fail", how="kill"), job("next", "place")], 1)
    assert list(failed) == ["dies"]
    assert done == {"next": [0, 1]}


def test_numbers_that_are_not_finite_arrive_as_none() -> None:
    assert results([job("a", "not_finite")], 1)[0] == {"a": [1.0, None, None]}


def test_an_error_of_the_caller_ends_the_workers(tmp_path: Path) -> None:
    began = time.monotonic()

    def tick() -> None:
        if (tmp_path / "a.begun").exists():
            raise RuntimeError("of the caller")

    with pytest.raises(RuntimeError, match="of the caller"):
        run_jobs([job("a", "save_when_interrupted", file=str(tmp_path / "a"))], 1, lambda event: None, tick)
    assert time.monotonic() - began < 500


PROGRAM = """
import sys
from swiftfl.experiment import pool
from swiftfl.experiment.pool import Job, run_jobs
jobs = [Job(n, "pool_functions:save_when_interrupted", {"file": f"{sys.argv[1]}/{n}"}) for n in "abc"]
try:
    run_jobs(jobs, 2, print)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        signal.SIGKILL,
        pytest.param(signal.SIGINT, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, marks=pytest.mark.slow),
    ],
)
def test_a_stop_lets_the_workers_save(tmp_path: Path, number: signal.Signals) -> None:
    """Also when the pool's own process is killed; a job that nobody has begun is not begun any more."""
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)])
    wait_for(tmp_path / "a.begun", tmp_path / "b.begun")
    process.send_signal(number)
    assert process.wait(120) == (-9 if number == signal.SIGKILL else 130)
    wait_for(tmp_path / "a", tmp_path / "b")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a", "a.begun", "b", "b.begun"]


def wait_for(*files: Path) -> None:
    deadline = time.monotonic() + 120
    while not all(file.exists() for file in files):
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.02)
