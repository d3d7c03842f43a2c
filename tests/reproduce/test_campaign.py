"""A campaign keeps what has finished, goes on with what was begun, and survives its runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing import resource_tracker
from pathlib import Path

import numpy as np
import pytest
from campaign_program import HELD_AT, config, planned

from pool_here import run_jobs_here
from swiftfl.errors import UserError
from swiftfl.experiment.campaign import CampaignProgress, PlannedRun, campaign
from swiftfl.experiment.run import run
from swiftfl.record import RunFolder

PROGRAM = Path(__file__).parent / "campaign_program.py"
EPOCHS = 2


def start(folder: Path, held_at: Path | None = None) -> subprocess.Popen[bytes]:
    """One run after the other: beside each other, a busy machine could let the second overtake the first."""
    environment = {**os.environ, HELD_AT: str(held_at)} if held_at is not None else None
    return subprocess.Popen([sys.executable, str(PROGRAM), str(folder), str(EPOCHS), "1"], env=environment)


def wait_until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.02)


def workers_of(parent: int) -> list[int]:
    """The children that run a module of swiftfl; pytest has others, such as the resource tracker."""

    def is_worker(process: Path) -> bool:
        try:
            child = int((process / "stat").read_text().rsplit(")", 1)[1].split()[1]) == parent
            return child and b"swiftfl." in (process / "cmdline").read_bytes()
        except (OSError, IndexError):
            return False

    return [int(process.name) for process in Path("/proc").glob("[0-9]*") if is_worker(process)]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def results(folder: Path) -> list[tuple[object, bytes]]:
    """Metrics (without the time that evaluations took) and models of all runs."""
    found = []
    for job in planned(folder, EPOCHS):
        rows = RunFolder(job.path).read_rows("metrics.jsonl")
        plain = [{k: v for k, v in row.items() if k != "evaluation_seconds"} for row in rows]
        found.append((plain, np.ascontiguousarray(RunFolder(job.path).read_models()["models"]).tobytes()))
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[object, bytes]]:
    """What the campaign gives when nobody disturbs it; here without any worker."""
    folder = tmp_path_factory.mktemp("whole")
    for job in planned(folder, EPOCHS):
        run(job.config, job.path)
    return results(folder)


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGKILL,
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow),  # the pool's tests send them, too
        pytest.param(signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_a_campaign_that_was_ended_goes_on(
    tmp_path: Path, whole: list[tuple[object, bytes]], number: signal.Signals
) -> None:
    first, second, _ = (job.path for job in planned(tmp_path, EPOCHS))
    process = start(tmp_path, held_at=second / "checkpoint")
    wait_until(lambda: (first / "summary.json").is_file() and (second / "checkpoint").is_dir())
    workers = workers_of(process.pid)
    assert workers
    process.send_signal(number)
    process.wait(120)
    wait_until(lambda: not any(map(alive, workers)))
    assert not (second / "summary.json").exists()
    assert (second / "checkpoint").is_dir()
    kept = {file: file.stat().st_mtime_ns for file in first.iterdir()}
    assert start(tmp_path).wait(120) == 0
    assert {file: file.stat().st_mtime_ns for file in first.iterdir()} == kept
    events = [event["event"] for event in RunFolder(second).read_rows("events.jsonl")]
    assert "resume" in events
    assert results(tmp_path) == whole


def job(path: Path, **changes: object) -> PlannedRun:
    return PlannedRun(path, config(1, 0).with_changes(changes), 96)


def test_other_settings_are_refused_and_left_alone(tmp_path: Path) -> None:
    run(job(tmp_path / "a").config, tmp_path / "a")
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "a").iterdir()}
    other = job(tmp_path / "a", **{"algorithm.momentum": 0.5})
    with pytest.raises(
        UserError, match=r"a holds a run with other settings .*algorithm.momentum was 0.9 and is 0.5"
    ):
        campaign([other], 1, lambda progress: None)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="not a run folder"):
        campaign([job(tmp_path / "b")], 1, lambda progress: None)
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "a").iterdir()} == before
    assert (tmp_path / "b" / "thesis.tex").read_text() == "years of work"


def test_runs_that_fail_are_told_and_do_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [
        job(tmp_path / "impossible", **{"data.partition": "label_skew:7"}),
        job(tmp_path / "diverged", **{"algorithm.step_size.initial": 1e30}),
        job(tmp_path / "good"),
    ]
    seen: list[CampaignProgress] = []
    progress = campaign(jobs, 1, seen.append)
    assert list(progress.failed) == [str(tmp_path / "impossible"), str(tmp_path / "diverged")]
    assert "degree" in progress.failed[str(tmp_path / "impossible")]
    assert "diverged" in progress.failed[str(tmp_path / "diverged")]
    assert (tmp_path / "good" / "summary.json").is_file()
    assert (progress.runs_done, progress.runs) == (2, 3)
    monkeypatch.setattr("swiftfl.experiment.campaign.run_jobs", run_jobs_here)
    again = campaign(jobs, 1, seen.append)
    assert again.failed == progress.failed
    assert json.loads((tmp_path / "good" / "config.json").read_text())["seed"] == 0


def test_a_worker_that_dies_costs_its_run_only(tmp_path: Path) -> None:
    jobs = [PlannedRun(tmp_path / "long", config(4000, 0), 96 * 4000), job(tmp_path / "good")]
    killed: list[int] = []
    resource_tracker.ensure_running()
    bystander = resource_tracker._resource_tracker._pid  # type: ignore[attr-defined]

    def kill_the_first(progress: CampaignProgress) -> None:
        if not killed and (tmp_path / "long" / "metrics.jsonl").is_file():
            killed.extend(workers_of(os.getpid()))
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    progress = campaign(jobs, 1, kill_the_first)
    assert list(progress.failed) == [str(tmp_path / "long")]
    assert "killed by signal 9" in progress.failed[str(tmp_path / "long")]
    assert (tmp_path / "good" / "summary.json").is_file()
    assert alive(bystander)
