"""The run loop with real processes: progress, a clock that goes on, signals, divergence and disks."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mpi_jobs import end, needs_mpi, no_job_is_left, swiftfl

from swiftfl.errors import UserError
from swiftfl.experiment.config import Config
from swiftfl.experiment.measure import Measurement
from swiftfl.experiment.replay import replay_run
from swiftfl.experiment.run import RunResult, RunStopped, resume, run
from swiftfl.record import RunFolder
from swiftfl.workload.base import Workload
from swiftfl.workload.emulated import Emulated

__all__ = ["no_job_is_left"]

SLOW: dict[str, Any] = {
    "data.dataset": "digits",
    "model.name": "logistic",
    "topology.clients": 3,
    "engine.name": "local",
    "engine.epochs": 1,
    "engine.live.gradient_seconds": 0.1,
}


def slow(**changes: Any) -> Config:
    """Three clients, thirty steps of a tenth of a second each."""
    return Config().with_changes({**SLOW, **{key.replace("__", "."): v for key, v in changes.items()}})


class Watcher:
    """A progress display that remembers, and may do something once there was enough progress."""

    def __init__(self, after: int = 0, happens: Callable[[], object] = lambda: None) -> None:
        self.seen: list[tuple[float, int]] = []
        self.rows: set[int] = set()
        self._after, self._happens = after, happens

    def __call__(self, done: int, total: int, last: Measurement) -> None:
        self.seen.append((time.monotonic(), done))
        self.rows.add(last.iteration)
        if done >= self._after:
            self._happens()
            self._after = total + 1


def times(folder: Path) -> list[float]:
    return [row["time"] for row in RunFolder(folder).read_rows("metrics.jsonl")]


def test_progress_comes_from_counters_not_from_evaluations() -> None:
    watcher = Watcher()
    result = run(slow(engine__live__evaluate_seconds=1000.0), progress=watcher)
    assert [row["iteration"] for row in result.curve] == [0, result.summary["iterations"]]
    between = {done for _, done in watcher.seen if 0 < done < result.summary["iterations"]}
    assert len(between) >= 2, watcher.seen


def test_the_clock_goes_on_after_a_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    config = slow(engine__live__evaluate_seconds=0.3)
    with pytest.raises(RunStopped, match="swiftfl resume"):
        run(config, out, Watcher(20, lambda: os.kill(os.getpid(), signal.SIGHUP)))
    with pytest.raises(RunStopped, match="swiftfl resume"):
        resume(out, Watcher(40, lambda: os.kill(os.getpid(), signal.SIGUSR1)))
    before = times(out)
    result = resume(out)
    after = times(out)
    assert after[: len(before)] == before
    assert len(after) > len(before)
    assert after == sorted(after)
    assert result.summary["wall_seconds"] == pytest.approx(after[-1], abs=0.5)
    assert result.summary["wall_seconds"] > before[-1]
    events = RunFolder(out).read_rows("events.jsonl")
    assert [event["event"] for event in events if event["event"] in ("stop", "resume")] == [
        "stop",
        "resume",
    ] * 2
    told = [event["time"] for event in events]
    assert told == sorted(told)

    pauses: list[float] = []

    class Watched(Emulated):
        def __init__(self, workload: Workload, seconds: float) -> None:
            pauses.append(seconds)
            super().__init__(workload, seconds)

    monkeypatch.setattr("swiftfl.experiment.build.Emulated", Watched)
    assert replay_run(out).different == []
    assert pauses == [0.0], "a replay takes the time that it needs, not that of the run"


def test_a_folder_that_is_removed_costs_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    config = slow(engine__live__evaluate_seconds=0.3)
    result: RunResult = run(config, out, Watcher(20, lambda: shutil.rmtree(out)))
    said = capsys.readouterr().err
    assert result.elsewhere
    assert result.folder is not None
    assert result.folder.parent == tmp_path / "temporary"
    assert said.count("the run goes on") == 1
    assert RunFolder.open(result.folder).read_json("summary.json") == result.summary
    assert RunFolder(result.folder).read_rows("metrics.jsonl") == result.curve


def test_a_live_run_that_diverges_says_so_and_stops(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    config = Config().with_changes(
        {
            **SLOW,
            "engine.live.gradient_seconds": None,
            "engine.live.evaluate_seconds": 0.2,
            "engine.epochs": 100_000,
            "algorithm.step_size.initial": 1e300,
        }
    )
    result = run(config, out)
    assert result.diverged
    assert "diverged at epoch" in capsys.readouterr().err
    for file in [*out.glob("*.json"), *out.glob("*.jsonl")]:
        for line in file.read_text().splitlines() if file.suffix == ".jsonl" else [file.read_text()]:
            json.loads(line, parse_constant=pytest.fail)


def test_a_changed_configuration_is_not_mixed_in(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(RunStopped):
        run(slow(), out, Watcher(5, lambda: os.kill(os.getpid(), signal.SIGTERM)))
    config = json.loads((out / "config.json").read_text())
    config["algorithm"]["step_size"]["initial"] = 0.5
    (out / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"algorithm\.step_size\.initial was 0\.1 and is 0\.5"):
        resume(out)


@needs_mpi
@pytest.mark.slow
def test_mpi_runs_are_resolved_measured_and_resumed_like_the_others(tmp_path: Path) -> None:
    """Edges from a file give the number of clients; two resumes; one clock; strict JSON."""
    (tmp_path / "edges.txt").write_text("0 1\n1 2\n")
    config = Config().with_changes(
        {
            **SLOW,
            "engine.name": "mpi",
            "engine.epochs": 4,
            "engine.live.evaluate_seconds": 0.3,
            "topology.edges": str(tmp_path / "edges.txt"),
            "topology.clients": 16,
        }
    )
    (tmp_path / "mine.json").write_text(config.model_dump_json())
    out = tmp_path / "run"
    begin = ["run", str(tmp_path / "mine.json"), "--out", str(out)]
    for line in (begin, ["resume", str(out)]):
        before = len(times(out))
        job = swiftfl(3, *line)
        limit = time.monotonic() + 120
        while len(times(out)) < before + 3:
            assert job.poll() is None, job.communicate()
            assert time.monotonic() < limit
            time.sleep(0.05)
        job.send_signal(signal.SIGUSR1)
        done = end(job)
        assert done.returncode == 130, done.stderr
    done = end(swiftfl(3, "resume", str(out), "--json"))
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout, parse_constant=pytest.fail)
    assert summary["iterations"] == sum(4 * steps for steps in (30, 30, 30))
    assert times(out) == sorted(times(out))
    assert len(times(out)) >= 8
    assert summary["wall_seconds"] == pytest.approx(times(out)[-1], abs=1.0)
    assert json.loads((out / "config.json").read_text())["topology"]["clients"] == 3
    replayed = replay_run(out)
    assert replayed.different == []
    assert replayed.compared == 3
