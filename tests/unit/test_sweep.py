"""`swiftfl sweep`: which runs there are, tasks that share one folder, going on, the numbers at the end."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from pool_here import run_jobs_here
from swiftfl.cli.main import run_command
from swiftfl.experiment import campaign
from swiftfl.experiment.campaign import CampaignProgress, PlannedRun
from swiftfl.experiment.config import Config
from swiftfl.experiment.sweep import cell_name, grid_values, share

TINY = ["--clients", "3", "--model", "logistic", "--iterations", "12"]
GRID = ["--grid", "algorithm.name=swift,dsgd", "--grid", "step_size=0.1,0.05"]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


def runs_of(folder: Path) -> dict[str, float]:
    """The time at which each run finished, by folder."""
    return {
        str(file.parent.relative_to(folder)): file.stat().st_mtime_ns for file in folder.rglob("summary.json")
    }


def test_a_grid_with_seeds_is_run_once_reported_and_not_run_again(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["sweep", "digits", *TINY, *GRID, "--seeds", "2", "--workers", "2", "--out", "a"]
    assert run_command(command) == 0
    shown = capfd.readouterr().out
    cells = [f"algorithm={name}+step_size={size}" for name in ("swift", "dsgd") for size in ("0.1", "0.05")]
    first = runs_of(place / "a")
    assert sorted(first) == sorted(f"{cell}/seed-{seed}" for cell in cells for seed in (0, 1))
    config = json.loads((place / "a" / cells[3] / "seed-1" / "config.json").read_text())
    assert (config["algorithm"]["name"], config["seed"]) == ("dsgd", 1)
    assert config["algorithm"]["step_size"]["initial"] == 0.05
    with (place / "a" / "sweep.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8
    for row in rows:
        summary = json.loads((place / "a" / row["run"] / "summary.json").read_text())
        assert float(row["loss"]) == summary["loss"]
        assert f"algorithm={row['algorithm.name']}+" in row["run"]
    mean = sum(float(row["loss"]) for row in rows[:2]) / 2
    assert f"{mean:.4f} ±" in shown
    assert shown.count("2/2") == 4
    assert run_command(command) == 0
    assert runs_of(place / "a") == first


def test_tasks_of_a_job_array_share_the_runs(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(campaign, "run_jobs", run_jobs_here)
    command = ["sweep", "digits", *TINY, "--grid", "lr=0.1,0.05,0.02", "--workers", "1", "--out", "b"]
    monkeypatch.setenv("SLURM_ARRAY_TASK_COUNT", "2")
    monkeypatch.setenv("SLURM_ARRAY_TASK_MIN", "1")
    for task, finished in (("1", 2), ("2", 3)):
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", task)
        assert run_command(command) == 0
        assert len(runs_of(place / "b")) == finished
    assert len((place / "b" / "sweep.csv").read_text().splitlines()) == 4
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    capfd.readouterr()
    assert run_command(command) == 2
    assert "SLURM_ARRAY_TASK_ID" in capfd.readouterr().err


@pytest.mark.parametrize("count", [1, 2, 3, 7, 20])
def test_every_run_belongs_to_one_task(count: int) -> None:
    planned = [PlannedRun(Path(str(k)), Config(), 1) for k in range(13)]
    shares = [
        share(planned, {"SLURM_ARRAY_TASK_ID": str(4 + 2 * k), "SLURM_ARRAY_TASK_COUNT": str(count),
                        "SLURM_ARRAY_TASK_MIN": "4", "SLURM_ARRAY_TASK_STEP": "2"})
        for k in range(count)
    ]  # fmt: skip
    assert sorted(one.path.name for each in shares for one in each) == sorted(str(k) for k in range(13))
    assert share(planned, {}) == planned


@pytest.mark.slow
def test_a_run_that_fails_is_reported_and_the_others_go_on(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A degree that these data cannot have is found only when the run is built."""
    command = [
        "sweep",
        "digits",
        *TINY,
        "--grid",
        "partition=iid,label_skew:0.9",
        "--workers",
        "1",
        "--out",
        "c",
    ]
    assert run_command(command) == 1
    shown = capfd.readouterr()
    assert "failed: c/partition=label_skew-0.9/seed-0: label_skew" in shown.err
    assert list(runs_of(place / "c")) == ["partition=iid/seed-0"]
    assert "0/1" in shown.out


def test_what_no_run_can_have_is_told_once(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command = ["sweep", "digits", "--clients", "99999999999", "--grid", "lr=0.1,0.05", "--out", "d"]
    assert run_command([*command, "--seeds", "2", "--workers", "1"]) == 1
    shown = capfd.readouterr().err
    assert "failed: all 4 runs: 99999999999 clients are more than" in shown
    assert shown.count("99999999999 clients") == 1


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--grid lr", "--grid lr: it must be KEY=A,B,..."),
        ("--grid lr=", "--grid lr=: it must be KEY=A,B,..."),
        ("--grid lr=0.1,fast", '--grid lr must be a number, not "fast"'),
        ("--grid lr=0.1 --grid lr=0.2", "--grid lr is given twice"),
        ("--grid lr=0.1,0.1", "--grid: two runs would be called lr=0.1"),
        ("--grid speed=1,2", "--grid speed: there is no such setting"),
        ("--grid algorithm=swift,dsdg", "there is no algorithm 'dsdg': did you mean dsgd?"),
        (
            "--grid algorithm=swift,dsgd --grid communication_set=1",
            "--grid communication_set is for swift",
        ),
        ("--grid seed=1,2", "--grid seed: give --seeds N"),
        ("--grid lr=0.1 --seeds 0", "--seeds"),
        ("--grid engine=virtual,mpi", "--engine mpi needs one mpiexec for each run"),
        ("--grid lr=0.1 --out full", "full is not an empty folder, nor that of a sweep"),
    ],
)
def test_a_wrong_sweep_is_refused_before_anything_is_written(
    line: str, told: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "full").mkdir()
    (place / "full" / "mine.txt").write_text("mine")
    assert run_command(["sweep", "digits", *line.split()]) == 2
    shown = capsys.readouterr()
    assert told in shown.err
    assert shown.err.count("\n") == 1
    assert sorted(path.name for path in place.rglob("*")) == ["full", "mine.txt"]


@pytest.mark.parametrize(("engines", "at_once"), [("virtual,sampled", 5), ("virtual,local", 1)])
def test_runs_with_real_processes_go_on_alone(
    engines: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their times are those of a clock: no other run may be beside them, whichever combination it is of."""
    counts: list[int] = []

    def look(runs: object, workers: int, screen: object) -> CampaignProgress:
        counts.append(workers)
        raise KeyboardInterrupt

    monkeypatch.setattr("swiftfl.engines.threads.cores", lambda: 5)
    monkeypatch.setattr(campaign, "campaign", look)
    run_command(["sweep", "digits", *TINY, "--grid", f"engine={engines}", "--out", "a"])
    assert counts == [at_once]


def test_names_of_cells() -> None:
    assert cell_name({"algorithm.name": "swift", "model.name": "mlp"}) == "algorithm=swift+model=mlp"
    assert cell_name({"a.rate": "1", "b.rate": "2"}) == "a.rate=1+b.rate=2"
    long = [cell_name({"x": "v" * 300 + end}) for end in "ab"]
    assert long[0] != long[1]
    assert len(long[0]) == 120
    assert grid_values("a,b") == ["a", "b"]
